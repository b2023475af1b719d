"""Description of what a batch in ROLLING_POST waits for: episodes and their owners."""

import re
from collections.abc import Iterable, Sequence

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.schemas import EngineState, RunningEpisode
from core.events.alerts import AlertParams, BatchHolder, params_of
from core.state import Group
from proxy.context import ProxyContext, ServerHandle

HELD_AFTER = 5.0
"""Seconds in ROLLING_POST until a cause is given: most batches end sooner."""
SILENT_AFTER = 8.0
"""Seconds without a call after which a client may be dead: a call in progress counts as a sign of
life every 6 s."""
UNANSWERED_AFTER = 10.0
"""Seconds without an answer after which one of our groups is named."""
NAME_ALL_AFTER = 20.0
"""Seconds in ROLLING_POST after which all owners of episodes are named, including active ones."""
UPDATE_EVERY = 5.0
"""Minimum seconds between two alerts that differ only in their figures."""
MAX_NAMED = 3
"""Maximum number of named groups, and of named episodes per client or group."""
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.I)


class HeldBatch:
    """Description of what holds up the batch of one server.

    Args:
        context: The shared parts of the proxy.
        server: The server.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self._context = context
        self._server = server
        self._updated_at = 0.0
        self._alert: AlertParams | None = None
        self._holds: Sequence[BatchHolder] = ()
        """The holders that it names."""
        self.foreign: dict[str, float] = {}
        """Episode of another client that holds up the batch now -> seconds without a call."""
        self.groups: tuple[str, ...] = ()
        """Ids of our groups that hold up the batch now."""

    def update(self, status: ServerStatus) -> AlertParams | None:
        """Return what holds up the batch now; None if nothing does.

        The figures are at most `UPDATE_EVERY` seconds old.
        """
        now = self._context.clock()
        duration = now - status.since
        self.foreign, self.groups = {}, ()
        held = status.is_in({EngineState.ROLLING_POST}) and duration >= HELD_AFTER
        holders = self._holders(status, now) if held else []
        last = self._alert
        if not holders:
            self._alert = None
        elif last is None or _names(holders) != _names(self._holds) or self._is_due(now):
            self._updated_at, self._holds = now, holders
            self._alert = params_of(
                "held",
                seconds=round(duration, 1),
                holders=tuple(holders),
                users=self._waiting_users(),
            )
        return self._alert

    def _is_due(self, now: float) -> bool:
        return now - self._updated_at >= UPDATE_EVERY

    def _waiting_users(self) -> int:
        """Return the number of requests that wait for episodes of the next batch."""
        groups = self._context.bus.state.open_groups()
        waiting = [group for group in groups if group.phase in ("QUEUED", "CLAIMING")]
        return sum(group.server == self._server.name for group in waiting)

    def _holders(self, status: ServerStatus, now: float) -> list[BatchHolder]:
        watcher = self._server.watcher
        pool = watcher.pool
        if pool is None or pool.stale or watcher.pool_at < status.since:
            return []
        name_all = now - status.since >= NAME_ALL_AFTER
        mine: set[str] = set()
        others: dict[str, dict[str, RunningEpisode]] = {}
        for uuid, episode in (pool.running_episode_details or {}).items():
            if episode.client_uuid == self._context.client_uuid:
                mine.add(uuid)
            else:
                others.setdefault(episode.client_uuid or "", {})[uuid] = episode
        age = max(0.0, now - watcher.pool_at)
        foreign = [self._foreign(name, others[name], age, name_all) for name in sorted(others)]
        return [*self._own(mine, now, name_all), *(holder for holder in foreign if holder)]

    def _foreign(
        self, name: str, held: dict[str, RunningEpisode], age: float, name_all: bool
    ) -> BatchHolder | None:
        """Describe the episodes of another client; None while the client is active."""
        idle = [episode.idle + age for episode in held.values() if episode.idle is not None]
        silent_seconds = min(idle, default=0.0)
        if silent_seconds < SILENT_AFTER and not name_all:
            return None
        self.foreign |= {uuid: (episode.idle or 0.0) + age for uuid, episode in held.items()}
        seconds_left = [
            episode.limit - episode.idle - age
            for episode in held.values()
            if episode.limit is not None and episode.idle is not None
        ]
        return BatchHolder(
            by="client",
            count=len(held),
            name=client_name(name),
            episodes=_short_ids(held),
            quiet=round(silent_seconds, 1) if idle else None,
            left=round(max(0.0, *seconds_left), 1) if seconds_left else None,
        )

    def _own(self, mine: set[str], now: float, name_all: bool) -> list[BatchHolder]:
        """Describe our unanswered episodes by group; open ratings have an alert of their own."""
        holders: list[BatchHolder] = []
        for group in self._context.bus.state.open_groups():
            held = [candidate for candidate in group.candidates if candidate.episode_uuid in mine]
            mine = mine.difference(candidate.episode_uuid for candidate in held)
            silent = [candidate for candidate in held if candidate.phase == "claimed"]
            if not (silent and (name_all or _is_late(group, now))):
                continue
            holder = BatchHolder(
                by="group",
                count=len(silent),
                name=group.group_id,
                episodes=_short_ids(candidate.episode_uuid for candidate in silent),
                quiet=round(now - (group.generating_at or now), 1),
            )
            holders.append(holder)
            self.groups = (*self.groups, group.group_id)
        if (more := len(holders) - MAX_NAMED) > 0:
            holders[MAX_NAMED:] = [BatchHolder(by="groups", count=more)]
        if name_all and mine:
            holders.append(BatchHolder(by="nobody", count=len(mine), episodes=_short_ids(mine)))
        return holders


def client_name(name: str) -> str:
    """Return a client's display name: of a generated UUID only the first digits; may be empty."""
    return name[:8] if _UUID.fullmatch(name) else one_line(name, 40)


def _is_late(group: Group, now: float) -> bool:
    """Return whether a group's missing answers are late, considering when others arrived."""
    if any(candidate.phase == "answered" for candidate in group.candidates):
        return now - (group.answered_at or now) >= HELD_AFTER
    return now - (group.generating_at or now) >= UNANSWERED_AFTER


def _names(holders: Iterable[BatchHolder]) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Return what identifies the holders; their figures do not."""
    return [(holder.by, holder.name, holder.count, holder.episodes) for holder in holders]


def _short_ids(uuids: Iterable[str]) -> tuple[str, ...]:
    """Return the short ids of the first few episodes."""
    return tuple([one_line(uuid, 200)[:8] for uuid in sorted(uuids)[:MAX_NAMED]])
