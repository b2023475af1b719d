"""The console in a browser, with real processes."""
