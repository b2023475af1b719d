"""All swarm servers side by side; reading and text are those of `console/screens/engine`."""
