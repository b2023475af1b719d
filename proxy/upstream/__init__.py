"""Calls to an upstream in observe mode: address, key, body, errors; independent of groups."""
