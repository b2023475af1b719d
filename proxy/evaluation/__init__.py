"""Measurement of the policy on held-out prompts: probe set, looks, comparison with a baseline."""
