"""The upstream of observe mode among the proxy's servers, and what the operator is told of it."""

from collections.abc import Callable, Collection

from core.bus import Bus
from core.events import AlertCleared, AlertRaised
from core.settings import Settings
from proxy.observe import CANDIDATES, ObserveClient
from proxy.seat import ServerSeat
from swarm.claims import ClaimDesk
from swarm.seam import Transport
from swarm.watcher import Watcher


def seat_of(
    settings: Settings,
    name: str,
    transport: Transport,
    client_uuid: str,
    known: Callable[[], Collection[str]],
) -> ServerSeat:
    """The upstream of the settings, with a watcher and a desk of its own.

    Args:
        settings: Of the whole program.
        name: What to call it.
        transport: How requests travel.
        client_uuid: Ours.
        known: See `ClaimDesk`.

    Raises:
        UpstreamError: its address or its key cannot be used.
    """
    repeats = settings.proxy.repeats or CANDIDATES
    client = ObserveClient(settings.upstream, transport, client_uuid, repeats=repeats, name=name)
    watcher = Watcher(client)
    desk = ClaimDesk(client, watcher, known=known)
    return ServerSeat(name, client.base, client, watcher, desk, observes=True)


def say_how(bus: Bus, server: ServerSeat) -> None:
    """Tell the operator that nothing is trained, and what is wrong with the upstream."""
    client = server.client
    assert isinstance(client, ObserveClient)
    alerts, name = bus.state.alerts, f"upstream:{server.name}"
    if not client.announced:
        client.announced = True
        bus.publish(
            AlertRaised(
                server=server.name,
                key=f"observe:{server.name}",
                cause="observe mode: answers, rewards and ratings are recorded, nothing is trained",
                todo="To train, name a swarm server with --swarm-url",
                level="info",
            )
        )
    known = alerts.get(name)
    cause = f"the upstream does not answer as it should: {client.trouble}"
    if not client.trouble and known is not None:
        bus.publish(AlertCleared(server=server.name, key=name))
    elif client.trouble and (known is None or known.cause != cause):
        todo = "See that its key and its model's name are right"
        bus.publish(
            AlertRaised(server=server.name, key=name, cause=cause, todo=todo, level="error")
        )


def window(server: ServerSeat, told: int | None) -> int | None:
    """Tokens of a prompt and its answer together; None when that is not known.

    Args:
        server: An upstream lists it with its models.
        told: What a swarm server says of itself.
    """
    client = server.client
    return client.context if isinstance(client, ObserveClient) else told
