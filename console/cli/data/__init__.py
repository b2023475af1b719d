"""Commands for the data that leaves the console."""
