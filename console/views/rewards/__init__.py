"""Rewards as lines of text."""
