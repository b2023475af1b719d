"""Many episodes in threads: `run_episodes` returns a result for each, in order (`episodes`).

`executors` are AgentJet's thread pools, and one that does not idle between batches. All try failed
jobs again by one rule (`Retry`). `record` is a file of finished episodes, with which a killed run
continues.
"""
