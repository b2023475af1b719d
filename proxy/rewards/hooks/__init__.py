"""Operator's Python in a child process."""
