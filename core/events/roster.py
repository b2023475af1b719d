"""Events about who uses a swarm server."""

import msgspec

from core.events.base import Event


class ClientSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A client of a swarm server."""

    name: str
    """What it calls itself: its `client_uuid`."""
    running: int = 0
    """Episodes it has claimed."""
    active: bool = False
    """The server counts it where clients agree to a weight sync."""
    agreed: bool = False
    """It has agreed."""


class SlotsSeen(Event, frozen=True, kw_only=True):
    """Episodes of a server by who holds them, when that differs from what was known."""

    free: int
    """Registered and not claimed."""
    claimed: int
    clients: tuple[ClientSeen, ...] = ()
    """Those with most episodes first."""
    more: int = 0
    """Clients that are not in the list."""
