"""The torch backend on one device: sampling, updates, memory, learning."""
