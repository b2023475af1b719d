"""Child processes, feed, attach."""
