"""Simulation: the proxy's group pipeline on an event loop with virtual time.

`loop` runs tasks in an order that a seed chooses, and stops those of a killed process; `journal` is
the journal in memory, whose commits can be delayed, fail and be cut. The same seed gives the same
run.
"""
