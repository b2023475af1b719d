"""Several client processes share a batch; one is killed, one joins later."""
