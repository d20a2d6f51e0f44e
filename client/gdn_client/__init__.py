"""Command line client of a GDN Lab service."""
