"""What the parts of the proxy share: one object, made at start, handed around."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from core.bus import Bus
from core.journal import Journal
from core.settings import Settings
from core.tasks import Tasks
from proxy.rewards.base import RewardSource
from proxy.rows import Rows
from swarm.claims import ClaimDesk
from swarm.client import AsyncSwarmClient
from swarm.watcher import Watcher


@dataclass(slots=True)
class ServerSeat:
    """One swarm server, as the proxy holds it."""

    name: str
    url: str
    client: AsyncSwarmClient
    watcher: Watcher
    desk: ClaimDesk
    observes: bool = False
    """An upstream in observe mode: nothing is trained there."""


@dataclass(slots=True)
class Seat:
    """The proxy's shared parts. All of it lives on one event loop."""

    settings: Settings
    journal: Journal
    bus: Bus
    servers: dict[str, ServerSeat]
    """By name, the default one first."""
    rewards: RewardSource
    rows: Rows
    tasks: Tasks
    client_uuid: str
    clock: Callable[[], float] = field(default=time.time)
    """Unix seconds; all clocks shown to people."""
