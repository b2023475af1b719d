"""A journal in place of a proxy."""
