"""The wait for a stable OFFLINE between a stop and the next start.

A late OFFLINE of the exiting trainer would end the new start.
"""

import asyncio
import logging
from typing import Final

from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.protocol.errors import SwarmError, Unreachable
from ajet_swarm.protocol.schemas import EngineState

log = logging.getLogger(__name__)

QUIET = 8.0
"""Seconds to stay OFFLINE before a new start: an exiting trainer still sends messages."""
QUIET_EMBEDDED = 0.3
"""The same for the embedded engine, which has no separate trainer process."""
OFF_LIMIT = 60.0
"""Seconds that a stopped engine may take to become OFFLINE."""
NO_LINK_FOR = 1.0
"""Seconds without a connection after which a wait for OFFLINE gives up."""
OFF: Final = frozenset({EngineState.OFFLINE})
"""The states of an engine that is off."""


async def answers_as_embedded(client: SwarmWire) -> bool:
    """Return whether the server is the embedded engine; False without a response."""
    try:
        return await client.is_embedded()
    except SwarmError as error:
        log.warning("%s", error)
        return False


def quiet_seconds(embedded: bool, quiet: float | None = None) -> float:
    """Return the seconds for which a stopped server must stay OFFLINE before the next start.

    Args:
        embedded: Whether the server is the embedded engine.
        quiet: Seconds for a server with a trainer process; `QUIET` if None.
    """
    seconds = QUIET if quiet is None else quiet
    return min(seconds, QUIET_EMBEDDED) if embedded else seconds


async def wait_stable_offline(watcher: Watcher, quiet: float) -> ServerStatus:
    """Wait until a server has been OFFLINE, unchanged, for `quiet` seconds from now.

    No operation on an engine makes its server refuse connections: the wait ends with one that does.
    It also ends when another client starts the engine meanwhile; the status is not OFFLINE then.

    Args:
        watcher: Watcher of the server; its `run` must be active.
        quiet: Seconds, as of `quiet_seconds`.

    Raises:
        TimeoutError: no stable OFFLINE within `OFF_LIMIT + quiet` seconds.
        Unreachable: the server accepts no connections.
    """
    clock = asyncio.get_running_loop().time  # monotonic
    began, was_off = clock(), False

    def gone(seen: ServerStatus) -> bool:
        return seen.trouble == "gone" and (seen.down or watcher.missed_for > NO_LINK_FOR)

    def finished(seen: ServerStatus) -> bool:
        nonlocal was_off
        if seen.is_in(OFF):
            was_off = True
            return clock() - max(began, watcher.off_at) >= quiet
        return gone(seen) or (was_off and seen.reachable)

    seen = await watcher.wait_for(finished, OFF_LIMIT + quiet)
    if gone(seen):
        raise Unreachable(seen.error, watcher.client.url, sent=False)
    return seen
