"""The embedded engine: a swarm server that trains a small policy on the laptop's CPU."""
