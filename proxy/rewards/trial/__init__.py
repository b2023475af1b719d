"""Re-scoring stored groups."""
