"""Modal questions."""
