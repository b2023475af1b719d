"""Shipped data of the policy: base weights, merges, their checksum, and the corpus word lists."""
