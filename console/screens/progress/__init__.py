"""The progress screen."""
