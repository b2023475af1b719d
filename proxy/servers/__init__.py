"""Swarm servers and upstreams as the proxy sees them.

Each server has a `ServerHandle` (`proxy.context`): client, watcher, claimer, and five properties
that differ in observe mode, whose client is `observe.ObserveClient`. Its `ServerWatch` listens to
the watcher and turns what the server reports into events and alerts. Example: an engine stops. The
watcher polls OFFLINE, `RestartLoss` (`losses`) marks the finished groups that no update will train
on, the watch publishes `EngineChanged` and raises the alert `off`, and `ServerReader` (`reader`)
reads training run, updates and checkpoints when the engine rolls again. `HeldBatch` says whose
episodes a batch waits for, `slots` who holds episodes, `extensions` calls the routes that only the
embedded engine has, and `facts` keeps what the life cycle of a group asks about a server.
"""
