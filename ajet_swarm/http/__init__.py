"""HTTP/1.1 client of the library; it knows nothing of the swarm protocol."""
