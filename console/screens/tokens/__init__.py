"""Tokens: the token log of one candidate, with loss mask and log-probs when sampled and now.

`screen.py` reads the log of an episode and goes from candidate to candidate; `text.py` has its
table.
"""
