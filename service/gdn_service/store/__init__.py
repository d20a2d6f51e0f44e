"""The store: tables, migrations, and repositories that hold all SQL."""
