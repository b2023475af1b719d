"""State as lines of text."""
