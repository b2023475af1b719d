"""Names what a batch waits for when ROLLING_POST does not end: episodes, and who holds them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.schemas import EngineState, RunningEpisode
from core.events.alerts import BatchHeldUp, BatchHolder
from core.state import Group
from proxy.context import ProxyContext, ServerHandle

HELD_AFTER = 5.0
"""Seconds in ROLLING_POST before anything is said: most batches end sooner."""
QUIET = 8.0
"""Seconds without a call after which a client may be dead: a call under way is a sign of life
every 6 s."""
UNANSWERED = 10.0
"""Seconds without any answer after which a group of ours is named."""
LONG = 20.0
"""Seconds in ROLLING_POST after which every holder is named, however lively it is."""
UPDATE_EVERY = 5.0
"""Seconds between two alerts that differ in their figures alone."""
NAMED = 3
"""Clients, and episodes of each, that are named."""
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I)


@dataclass(frozen=True, slots=True)
class BatchBlocker:
    """Episodes of one client, or episodes of ours in one kind of trouble.

    Attributes:
        key: Which client and episodes: while it stays the same only figures have changed.
        holder: For the alert.
    """

    key: tuple[str, ...]
    holder: BatchHolder


class HeldBatch:
    """Describes what holds up the batch of one server.

    Args:
        context: The proxy's shared parts.
        server: The server.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self._context = context
        self._server = server
        self._key: tuple[tuple[str, ...], ...] = ()
        self._updated_at = 0.0
        self._alert: BatchHeldUp | None = None
        self.foreign: dict[str, float] = {}
        """Episodes of other clients that hold up the batch now -> seconds without a call."""
        self.groups: tuple[str, ...] = ()
        """Ids of our groups that the cause counts."""

    def update(self, seen: ServerStatus) -> BatchHeldUp | None:
        """Return what holds up the batch now; None when it is not held up.

        The figures are at most `UPDATE_EVERY` seconds old.
        """
        now = self._context.clock()
        lasted = now - seen.since
        self.foreign = {}
        held = seen.is_in({EngineState.ROLLING_POST}) and lasted >= HELD_AFTER
        holders = self._holders(seen, now) if held else []
        key = tuple(one.key for one in holders)
        due = now - self._updated_at >= UPDATE_EVERY
        if not holders:
            self._alert = None
        elif key != self._key or self._alert is None or due:
            self._updated_at = now
            self._alert = BatchHeldUp(
                seconds=round(lasted, 1),
                holders=tuple([one.holder for one in holders]),
                users=self._users(),
            )
        self._key = key
        return self._alert

    def _users(self) -> int:
        """Requests that wait for episodes of the next batch."""
        groups = self._context.bus.state.open_groups()
        waiting = [one for one in groups if one.phase in ("QUEUED", "CLAIMING")]
        return sum(one.server == self._server.name for one in waiting)

    def _holders(self, seen: ServerStatus, now: float) -> list[BatchBlocker]:
        watcher = self._server.watcher
        pool = watcher.pool
        if pool is None or pool.stale or watcher.pool_at < seen.since:
            return []
        details = pool.running_episode_details or {}
        long = now - seen.since >= LONG
        ours = self._context.client_uuid
        mine = {uuid for uuid, one in details.items() if one.client_uuid == ours}
        age = max(0.0, now - watcher.pool_at)
        others: dict[str, dict[str, RunningEpisode]] = {}
        for uuid, one in details.items():
            if uuid not in mine:
                others.setdefault(one.client_uuid or "", {})[uuid] = one
        found = [self._of_client(name, held, age, long) for name, held in sorted(others.items())]
        return [*self._of_ours(mine, now, long), *(one for one in found if one is not None)]

    def _of_client(
        self, name: str, held: dict[str, RunningEpisode], age: float, long: bool
    ) -> BatchBlocker | None:
        """Episodes of another client; None while it shows signs of life."""
        idle = [one.idle + age for one in held.values() if one.idle is not None]
        quiet = min(idle, default=0.0)
        if quiet < QUIET and not long:
            return None
        self.foreign |= {uuid: (one.idle or 0.0) + age for uuid, one in held.items()}
        left = [
            one.limit - one.idle - age
            for one in held.values()
            if one.limit is not None and one.idle is not None
        ]
        holder = BatchHolder(
            by="client",
            count=len(held),
            name=client_name(name),
            episodes=_first(held),
            quiet=round(quiet, 1) if idle else None,
            left=round(max(0.0, *left), 1) if left else None,
        )
        return BatchBlocker((name, *sorted(held)), holder)

    def _of_ours(self, mine: set[str], now: float, long: bool) -> list[BatchBlocker]:
        """Our episodes that have not answered, by group; what waits for a rating has an alert."""
        found: list[BatchBlocker] = []
        known: set[str] = set()
        self.groups = ()
        for group in self._context.bus.state.open_groups():
            held = [one for one in group.candidates if one.episode_uuid in mine]
            known.update(one.episode_uuid for one in held)
            silent = [one for one in held if one.phase == "claimed"]
            if not (silent and (long or _is_late(group, now))):
                continue
            uuids = [one.episode_uuid for one in silent]
            since = now - (group.generating_at or now)
            holder = BatchHolder(
                by="group",
                count=len(silent),
                name=group.group_id,
                episodes=_first(uuids),
                quiet=round(since, 1),
            )
            found.append(BatchBlocker((group.group_id, *uuids), holder))
            self.groups = (*self.groups, group.group_id)
        more = len(found) - NAMED
        if more > 0:
            key = tuple(part for one in found[NAMED:] for part in one.key)
            found[NAMED:] = [BatchBlocker(key, BatchHolder(by="groups", count=more))]
        if long and (strays := mine - known):
            holder = BatchHolder(by="nobody", count=len(strays), episodes=_first(strays))
            found.append(BatchBlocker(tuple(sorted(strays)), holder))
        return found


def client_name(name: str) -> str:
    """Return how a client is called: a chosen name as it is, a generated one by its first digits,
    nothing without a name."""
    return name[:8] if _UUID.fullmatch(name) else one_line(name, 40)


def _is_late(group: Group, now: float) -> bool:
    """Whether what is missing in a group is late: the others, or none of them, answered."""
    if any(one.phase == "answered" for one in group.candidates):
        return now - (group.answered_at or now) >= HELD_AFTER
    return now - (group.generating_at or now) >= UNANSWERED


def _first(uuids: Iterable[str]) -> tuple[str, ...]:
    """Return the short ids of the first few episodes."""
    return tuple([one_line(uuid, 200)[:8] for uuid in sorted(uuids)[:NAMED]])
