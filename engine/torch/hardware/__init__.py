"""The device that torch computes on."""
