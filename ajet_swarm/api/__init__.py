"""One server's routes as methods, what its answers mean, the status watcher."""
