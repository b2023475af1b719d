"""File formats and checkpoint folders."""
