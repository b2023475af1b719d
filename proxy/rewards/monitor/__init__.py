"""Reward-hacking and outlier watch."""
