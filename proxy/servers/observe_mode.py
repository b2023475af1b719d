"""The upstream of observe mode as one of the servers of the proxy, and its alerts."""

from collections.abc import Callable, Collection

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.claims.claimer import GroupClaimer
from ajet_swarm.http.interface import Transport
from core.bus import Bus
from core.events.alerts import ObserveMode, UpstreamTrouble
from core.settings import Settings
from proxy.alerts import clear_alert, show_alert
from proxy.context import ServerHandle
from proxy.servers.observe_client import CANDIDATES, ObserveClient


def handle_of(
    settings: Settings,
    name: str,
    transport: Transport,
    client_uuid: str,
    known: Callable[[], Collection[str]],
) -> ServerHandle:
    """The upstream of the settings, with a watcher and a claimer of its own.

    Args:
        settings: Of the whole program.
        name: What to call it.
        transport: How requests travel.
        client_uuid: Ours.
        known: See `GroupClaimer`.

    Raises:
        UpstreamError: its address or its key cannot be used.
    """
    repeats = settings.proxy.repeats or CANDIDATES
    client = ObserveClient(settings.upstream, transport, client_uuid, repeats=repeats, name=name)
    watcher = Watcher(client)
    claimer = GroupClaimer(client, watcher, known=known)
    return ServerHandle(name, client.base, client, watcher, claimer, observes=True)


def update_alerts(bus: Bus, server: ServerHandle) -> None:
    """Show that nothing is trained, and what is wrong with the upstream."""
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


def window(server: ServerHandle, told: int | None) -> int | None:
    """Tokens of a prompt and its answer together; None when that is not known.

    Args:
        server: An upstream lists it with its models.
        told: What a swarm server says of itself.
    """
    client = server.client
    return client.context_length if isinstance(client, ObserveClient) else told
