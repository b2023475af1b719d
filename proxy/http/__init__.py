"""Bytes and ASGI: server protocol, TLS, router, error shapes; knows no groups."""
