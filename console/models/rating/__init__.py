"""Figures of raters: one session, and several raters beside each other."""
