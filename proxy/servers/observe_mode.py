"""Observe mode: the upstream as a server of the proxy, with what differs from a swarm server."""

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.http.interface import Transport
from ajet_swarm.runtime import SYSTEM, Runtime
from core.settings import Settings
from proxy.context import ServerHandle
from proxy.servers.observe_claimer import ObserveClaimer
from proxy.servers.observe_client import CANDIDATES, ObserveClient


def observe_handle(
    settings: Settings,
    name: str,
    transport: Transport,
    client_uuid: str,
    runtime: Runtime = SYSTEM,
) -> ServerHandle:
    """Return the handle of the configured upstream, with its own watcher and claimer.

    Args:
        settings: The program's settings.
        name: Name of the upstream.
        transport: The transport that sends requests.
        client_uuid: Id of this client.
        runtime: For the times, ids and pauses.

    Raises:
        UpstreamError: The address or the key of the upstream is invalid.
    """
    repeats = settings.proxy.repeats or CANDIDATES
    client = ObserveClient(
        settings.upstream, transport, client_uuid, repeats=repeats, name=name, runtime=runtime
    )
    watcher = Watcher(client, runtime.clock.wall)
    claimer = ObserveClaimer(client, watcher, runtime)
    return ServerHandle(
        name,
        client.base,
        client,
        watcher,
        claimer,
        most_episodes=max(settings.upstream.calls, repeats),
        trains=False,
        intent_is_durable=False,
        run_samples=False,
        strict_window=True,
        may_be_commanded=False,
    )
