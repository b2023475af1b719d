"""Run many episodes: executors, retries, resumable record."""
