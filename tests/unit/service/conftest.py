from support.service_fixtures import database_url, repo, store

__all__ = ["database_url", "repo", "store"]
