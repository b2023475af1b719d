"""Commands about rewards."""
