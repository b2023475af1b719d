"""Request -> group: sessions, helper calls, retries, registry."""
