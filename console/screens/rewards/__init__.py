"""The rewards screen."""
