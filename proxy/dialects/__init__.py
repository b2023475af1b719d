"""The HTTP API formats that clients use: one request parser and one response writer each."""
