"""Screens: they show the state and send commands."""
