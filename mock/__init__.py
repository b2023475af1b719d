"""The mock user: replays a dataset through the application."""
