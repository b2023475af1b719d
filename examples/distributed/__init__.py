"""Several client processes share a batch; some die, some come later."""
