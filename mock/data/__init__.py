"""Questions that the mock user can send."""
