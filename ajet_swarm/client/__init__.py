"""The clients for scripts: `AsyncSwarm` for asyncio, and `SwarmClient`, the same for threads.

`AsyncSwarm` (`asynchronous`) claims and ends episodes; it is built on `EngineOrders`
(`engine_control`: jobs, starts, stops) and `SwarmBase` (`base`: connection, watcher, waits, the end
of training). `SwarmClient` (`synchronous`) runs one on an event loop on a thread, so each of its
methods is one line:

    end_episode = _waiting(AsyncSwarm.end_episode)

`multi_server` has both forms of an episode on several servers. `throttle` limits a client to its
share of a batch.
"""
