"""/v1 request handling and the informational routes."""
