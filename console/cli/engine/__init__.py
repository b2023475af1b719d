"""Commands about engines and their jobs."""
