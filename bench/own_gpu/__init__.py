"""The torch backend on one card: sampling, updates, memory."""
