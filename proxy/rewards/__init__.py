"""Where rewards come from: the built-in parts, hook folders, and the operator's rating.

Kept empty on purpose: the child process that runs hooks imports this package at every start.
"""
