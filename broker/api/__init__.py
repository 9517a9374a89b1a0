"""The HTTP API of a broker: an ASGI app over the submitter, the registry and the store."""
