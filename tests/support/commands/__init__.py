"""Commands of the console in the process of a test, and a proxy in memory for them."""
