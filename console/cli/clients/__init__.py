"""Clients: settings of client programs."""
