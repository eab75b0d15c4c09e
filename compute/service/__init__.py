"""The compute service: the same functions over HTTP, and the client that calls them either way."""
