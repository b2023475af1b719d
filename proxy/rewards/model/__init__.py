"""Rewards.yaml: read, edit, assemble, hot reload."""
