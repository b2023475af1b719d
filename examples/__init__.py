"""Runnable examples; from the root of the repository: `python -m examples.persona`."""
