"""Numpy policies that implement engine.interface.PolicyBackend."""
