"""The service: API, queue, runner, store."""
