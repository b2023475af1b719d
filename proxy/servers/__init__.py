"""Swarm servers and upstreams as the proxy sees them."""
