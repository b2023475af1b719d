"""Embedded engines and policies for tests, files of small models, a server for real clients."""
