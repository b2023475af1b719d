"""Proxies in the loop of a test, and input for their rewards."""
