"""Three kinds of tasks share every batch in a ratio that can be changed while it runs."""
