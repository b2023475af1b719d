"""The AgentJet swarm protocol as a client library.

`client` speaks to one server over a `transport`, `watcher` watches it, `claims` claims whole
groups, `answers` says what a server means, `schemas` is the wire, `job` what a run is started
with, `errors` the tree of what can go wrong. Only `transport` imports aiohttp.
"""
