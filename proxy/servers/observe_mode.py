"""Observe mode: the upstream as a server of the proxy, and its alerts."""

from collections.abc import Callable, Collection

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.http.interface import Transport
from ajet_swarm.runtime import SYSTEM, Runtime
from core.bus import Bus
from core.events.alerts import ObserveMode, UpstreamTrouble
from core.settings import Settings
from proxy.alerts import clear_alert, show_alert
from proxy.context import ServerHandle
from proxy.servers.observe_claimer import ObserveClaimer
from proxy.servers.observe_client import CANDIDATES, ObserveClient


def observe_handle(
    settings: Settings,
    name: str,
    transport: Transport,
    client_uuid: str,
    known: Callable[[], Collection[str]],
    runtime: Runtime = SYSTEM,
) -> ServerHandle:
    """Return the handle of the configured upstream, with its own watcher and claimer.

    Args:
        settings: The program's settings.
        name: Name of the upstream.
        transport: The transport that sends requests.
        client_uuid: Id of this client.
        known: See `EpisodeClaimer`.
        runtime: For the times, ids and pauses.

    Raises:
        UpstreamError: The address or the key of the upstream is invalid.
    """
    repeats = settings.proxy.repeats or CANDIDATES
    client = ObserveClient(
        settings.upstream, transport, client_uuid, repeats=repeats, name=name, runtime=runtime
    )
    watcher = Watcher(client, runtime.clock.wall)
    claimer = ObserveClaimer(client, watcher, known, runtime)
    return ServerHandle(name, client.base, client, watcher, claimer, observes=True)


def update_alerts(bus: Bus, server: ServerHandle) -> None:
    """Raise or clear the alerts: nothing is trained, and what is wrong with the upstream."""
    client = server.client
    assert isinstance(client, ObserveClient)
    name = f"upstream:{server.name}"
    if not client.announced:
        client.announced = True
        show_alert(
            bus,
            f"observe:{server.name}",
            ObserveMode(),
            level="info",
            server=server.name,
        )
    if client.trouble:
        params = UpstreamTrouble(error=client.trouble)
        show_alert(bus, name, params, level="error", server=server.name)
    else:
        clear_alert(bus, name)


def context_window_of(server: ServerHandle, reported: int | None) -> int | None:
    """Return the context window in tokens (prompt and answer together); None if unknown.

    Args:
        server: The server; an upstream lists the window with its models.
        reported: The window that a swarm server reports; None if unknown.
    """
    client = server.client
    return client.context_length if isinstance(client, ObserveClient) else reported
