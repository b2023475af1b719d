"""Servers that answer by a script: swarm server, upstream, judge."""
