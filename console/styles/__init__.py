"""Stylesheets; one for the frame, one for each area."""
