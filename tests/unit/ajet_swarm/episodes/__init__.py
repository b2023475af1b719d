"""Tests of the swarm protocol client."""
