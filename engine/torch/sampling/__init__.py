"""Sampling of answers from a transformers model."""
