"""The clients for scripts: `AsyncSwarm` for asyncio, and `SwarmClient`, the same for threads.

`AsyncSwarm` (`asynchronous`) claims and ends episodes. Its parts share a `Link` to the server
(`link`: status, waits with the client's patience): `EngineOrders` (`engine_control`: jobs, starts,
stops), `Throttle` (`throttle`: the client's share of a batch), and the listeners of `training`. A
method of a part is one of the client by one line:

    start_engine = _part("_engine", EngineOrders.start_engine)

`SwarmClient` (`synchronous`) runs an `AsyncSwarm` on an event loop on a thread, in the same way:

    end_episode = _waiting(AsyncSwarm.end_episode)

`multi_server` has both forms of an episode on several servers.
"""
