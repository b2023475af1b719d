"""All-or-nothing claiming: queue, attempts, shared batches, releases."""
