"""Textual widgets, from which the screens are composed."""
