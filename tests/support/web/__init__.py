"""Browsers for tests of the console in a browser: a plain client, and Chromium."""
