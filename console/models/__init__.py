"""UI state and rules; independent of Textual."""
