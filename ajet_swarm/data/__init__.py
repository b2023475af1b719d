"""Task readers."""
