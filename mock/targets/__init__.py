"""Applications that the mock user asks.

The package imports nothing: the process of a function imports it too."""
