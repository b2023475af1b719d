"""One swarm server: its routes, what its answers mean, and its status.

`SwarmWire` (`wire`) sends the single requests, a method for each route of a table; the proxy's
observe mode derives its upstream from it. `outcomes` interprets answers as pure functions of status
and body, with the quirks of all versions of the server; `chat` and `chat_stream` do so for chat
completions. `Watcher` (`watcher`) polls the status, and every wait for a state of the engine is a
wait for its next reading:

    seen = await watcher.wait_for({EngineState.ROLLING}, timeout=60)
"""
