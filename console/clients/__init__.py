"""What to set in client programs so that they use the proxy."""
