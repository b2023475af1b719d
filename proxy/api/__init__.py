"""Handlers of the `/v1` routes and of the informational routes."""
