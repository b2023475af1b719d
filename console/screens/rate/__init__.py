"""The rating screen."""
