"""Names what a batch waits for when ROLLING_POST does not end: episodes, and who holds them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.schemas import EngineState, RunningEpisode
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
"""Seconds between two texts that differ in their figures alone."""
NAMED = 3
"""Clients, and episodes of each, that are named."""
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I)


@dataclass(frozen=True, slots=True)
class BatchBlocker:
    """Episodes of one client, or episodes of ours in one kind of trouble.

    Attributes:
        key: Which client and episodes: while it stays the same only figures have changed.
        text: For the alert.
    """

    key: tuple[str, ...]
    text: str


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
        self._said_at = 0.0
        self._said = ""
        self.foreign: dict[str, float] = {}
        """Episodes of other clients that hold up the batch now -> seconds without a call."""
        self.groups: tuple[str, ...] = ()
        """Ids of our groups that the cause counts."""

    def cause(self, seen: ServerStatus) -> str:
        """What holds up the batch now; empty when it is not held up.

        Figures in the text are at most `UPDATE_EVERY` seconds old.
        """
        now = self._context.clock()
        lasted = now - seen.since
        self.foreign = {}
        held = seen.is_in({EngineState.ROLLING_POST}) and lasted >= HELD_AFTER
        holders = self._holders(seen, now) if held else []
        key = tuple(one.key for one in holders)
        if not holders:
            self._said = ""
        elif key != self._key or not self._said or now - self._said_at >= UPDATE_EVERY:
            self._said_at = now
            texts = [one.text for one in holders]
            if users := self._users():
                texts.append(f"{_count(users, 'user')} wait{'s' if users == 1 else ''}")
            self._said = f"ROLLING_POST for {lasted:.0f} s: {'; '.join(texts)}"
        self._key = key
        return self._said

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
        text = f"{_count(len(held), 'episode')} held by client {client_name(name)}"
        if idle:
            text += f", last seen {quiet:.0f} s ago"
        text += f" ({_episodes(held)})"
        if left:
            text += f", taken back in {max(0.0, *left):.0f} s"
        return BatchBlocker((name, *sorted(held)), text)

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
            text = (
                f"{_count(len(silent), 'episode')} of our group {group.group_id} "
                f"({_episodes(uuids)}): no answer for {since:.0f} s"
            )
            found.append(BatchBlocker((group.group_id, *uuids), text))
            self.groups = (*self.groups, group.group_id)
        more = len(found) - NAMED
        if more > 0:
            key = tuple(part for one in found[NAMED:] for part in one.key)
            found[NAMED:] = [BatchBlocker(key, f"{_count(more, 'more group')} of ours")]
        if long and (strays := mine - known):
            text = f"{_count(len(strays), 'episode')} of ours that no group holds"
            found.append(BatchBlocker(tuple(sorted(strays)), f"{text} ({_episodes(strays)})"))
        return found


def client_name(name: str) -> str:
    """How a client is called: a chosen name as it is, a generated one by its first digits."""
    short = name[:8] if _UUID.fullmatch(name) else one_line(name, 40)
    return short or "without a name"


def _is_late(group: Group, now: float) -> bool:
    """Whether what is missing in a group is late: the others, or none of them, answered."""
    if any(one.phase == "answered" for one in group.candidates):
        return now - (group.answered_at or now) >= HELD_AFTER
    return now - (group.generating_at or now) >= UNANSWERED


def _episodes(uuids: Iterable[str]) -> str:
    names = [one_line(uuid, 200)[:8] for uuid in sorted(uuids)]
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
