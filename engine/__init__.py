"""The embedded engine: a swarm server on the laptop's CPU that really trains."""
