"""HTTP and ASGI: server protocol, TLS, router, error responses; independent of groups."""
