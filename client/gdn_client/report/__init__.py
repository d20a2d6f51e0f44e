"""From verdict documents to tables, and from tables to terminal, Markdown, JUnit and JSON."""
