"""Unit tests, mirroring the source."""
