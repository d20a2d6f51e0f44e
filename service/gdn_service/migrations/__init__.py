"""Alembic environment of the store; applied by `gdn-service migrate` and at start-up."""
