"""HTTP/1.1 client of the library; independent of the swarm protocol."""
