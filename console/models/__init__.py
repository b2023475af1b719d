"""UI state and rules, without Textual."""
