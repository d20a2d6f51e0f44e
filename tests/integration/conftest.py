from support.service_fixtures import database_url, postgres_template, repo, store

__all__ = ["database_url", "postgres_template", "repo", "store"]
