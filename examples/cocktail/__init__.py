"""Three kinds of tasks share every batch in a ratio that can change during the run."""
