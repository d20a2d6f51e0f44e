"""Command line client of a GDN Lab service."""

__version__ = "0.1.0"
