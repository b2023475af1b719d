"""Losses on a server: episodes that another client aborts, and all that a restart discards.

AgentJet lets any client abort any episode. A stop of the engine discards its claimed episodes and
the finished groups of the batch that it collected.

Description of what a batch in ROLLING_POST waits for: episodes and their owners.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.schemas import EngineState, PoolInfo, RunningEpisode
from core.events import GroupLost
from core.events.alerts import AlertParams, BatchHolder, params_of
from core.state import Group, Server
from proxy.alerts import replace_alert
from proxy.context import ProxyContext, ServerHandle

RECLAIM_EVERY = 10.0
"""Seconds between two times at which a server reclaims idle episodes."""
HELD = frozenset({"claimed", "answered"})
"""Phases of a candidate whose episode is on the server."""
FILLING = frozenset({"ROLLING", "ROLLING_POST"})
"""States in which a server collects episodes, which a stop discards."""
CAUSES = {EngineState.OFFLINE: "an engine stop", EngineState.BOOTING: "an engine restart"}
"""State that follows a collecting state -> what discarded the episodes."""
LATEST = "latest"
"""Name of the checkpoint with the weights of the last update."""
ABSENT_FOR = 10.0
"""Seconds for which the pool of a server that was not seen to stop must lack all our groups: a
server that keeps running may report a finished episode late."""


class AbortWatch:
    """Comparison of our open groups' episodes with those that the server reports as claimed."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self._context = context
        self._server = server
        self._seen: dict[str, tuple[RunningEpisode, float]] = {}
        """Our episodes as last seen in the pool -> (episode, time)."""
        self._missing: set[str] = set()

    def on_pool(self, pool: PoolInfo) -> None:
        """Compare with a new state of the pool.

        An episode counts as lost if it is missing twice in succession while its group holds it:
        an end in progress affects only one of them.
        """
        if pool.stale:
            return
        now, held = self._context.clock(), self._held()
        details = pool.running_episode_details or {}
        ours = {
            uuid: (episode, now)
            for uuid, episode in details.items()
            if uuid in held and episode.client_uuid == self._context.client_uuid
        }
        self._seen = {uuid: seen for uuid, seen in self._seen.items() if uuid in held} | ours
        missing = self._seen.keys() - ours.keys()
        for uuid in missing & self._missing:
            self._raise_alert(held[uuid], self._seen.pop(uuid), details.get(uuid), now)
        self._missing = missing - self._missing

    def _held(self) -> Mapping[str, Group]:
        return {
            candidate.episode_uuid: group
            for group in self._context.bus.state.open_groups()
            if group.server == self._server.name and group.phase != "SUBMITTING"
            for candidate in group.candidates
            if candidate.episode_uuid and candidate.phase in HELD
        }

    def _raise_alert(
        self,
        group: Group,
        seen: tuple[RunningEpisode, float],
        taker: RunningEpisode | None,
        now: float,
    ) -> None:
        episode, at = seen
        idle, limit = episode.idle or 0.0, episode.limit or 0.0
        if taker is None and limit and idle + (now - at) + RECLAIM_EVERY >= limit:
            return  # the server reclaimed it after its idle limit
        name, client = self._server.name, taker.client_uuid if taker is not None else ""
        taken = params_of(
            "taken",
            server=name,
            group=group.group_id,
            idle=idle,
            limit=limit,
            client=f"{client:.40}",
        )
        replace_alert(self._context.bus, f"taken:{name}", taken, groups=(group.group_id,))


class RestartLoss:
    """Detection of what a server lost in a restart; an alert tells it once the server answers.

    Finished groups that no update trains on are marked as lost, including those of an engine that
    this proxy stops before its update, and those of an engine that stopped while no proxy watched.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        keeps_tokens: Whether it stores the tokens of episodes in memory, as the embedded engine.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle, *, keeps_tokens: bool) -> None:
        self._context = context
        self._name = server.name
        self._keeps_tokens = keeps_tokens
        self._is_known = False
        """The server has answered this proxy."""
        self._is_down = False
        """It does not answer; what it held is in the next three attributes."""
        self._claimed = 0
        self._generating: tuple[str, ...] = ()
        self._untrained: tuple[Group, ...] = ()
        self._alert_raised = False
        self._unwatched: tuple[Group, ...] = ()
        """Finished groups of the previous proxy whose fate is not known yet."""
        self._was_off = False
        """The engine was off since this proxy's start, so the pool of `_unwatched` is gone."""
        self._absent_since: float | None = None

    @property
    def _state(self) -> Server | None:
        return self._context.bus.state.servers.get(self._name)

    def on_status(self, status: ServerStatus) -> None:
        """Handle a new status of the server, before it is published."""
        if not status.reachable:
            if not self._is_down:  # record it now: users may disconnect meanwhile
                self._is_down = True
                self._record_holdings()
            return
        if not self._is_known:
            self._is_known = True
            finished = [group for group in self._collected() if group.phase == "DONE"]
            self._unwatched = tuple(finished)
        self._was_off = self._was_off or status.state in CAUSES
        if status.trouble == "restarted":
            if not self._alert_raised:
                self._alert_raised, self._is_down = True, False
                self._raise_alert()
            return
        self._alert_raised = self._is_down = False
        if status.state in CAUSES and not status.trouble:
            self._mark_stopped(CAUSES[status.state])

    def check(
        self,
        status: ServerStatus,
        pool: PoolInfo | None,
        pool_at: float,
        *,
        knows_checkpoints: bool,
    ) -> None:
        """Mark the finished groups of the previous proxy as lost once it is certain that they are.

        They are if the engine was off and its weights have no update on them, or if it collects
        episodes for the same step and its pool does not have them.

        Args:
            status: The present status of the server.
            pool: The last reading of its pool.
            pool_at: Time of that reading, Unix seconds.
            knows_checkpoints: Whether this proxy has read the checkpoints.
        """
        if not self._unwatched or not status.reachable:
            return
        step = self._unwatched[0].step or 0
        if status.state in CAUSES:
            trained = self._saved_step() if knows_checkpoints else None
            if trained is not None:
                self._decide(lost=trained < step)
        elif not status.state.rolling or (status.step or 0) > step:
            self._decide(lost=False)  # an update is in progress, or was made
        elif status.step and pool is not None and pool_at > status.since and not pool.stale:
            self._check_pool(pool)

    def _check_pool(self, pool: PoolInfo) -> None:
        absent = _is_absent(self._unwatched, pool)
        if absent is None:
            return
        now = self._context.clock()
        if absent and not self._was_off and self._absent_since is None:
            self._absent_since = now
        elif not absent or self._was_off or now - (self._absent_since or now) >= ABSENT_FOR:
            self._decide(lost=absent)

    def _saved_step(self) -> int | None:
        """Return the number of updates in the server's saved weights; None if unknown."""
        server = self._state
        if server is None or server.checkpoints is None:
            return None
        for checkpoint in server.checkpoints:
            if checkpoint.name == LATEST:
                return None if checkpoint.damaged else checkpoint.step
        return None if server.checkpoints_more else 0

    def _decide(self, *, lost: bool) -> None:
        groups, self._unwatched = self._unwatched, ()
        if lost:
            self._claimed, self._generating, self._untrained = 0, (), groups
            self._raise_alert()

    def _mark_stopped(self, cause: str) -> None:
        server = self._state  # the state before this status
        if server is None or (server.lost and server.seen_at is None):
            return  # not seen by this proxy yet: an update may have happened
        if server.state in FILLING:
            self._unwatched = ()
            self._mark(self._collected(), cause)

    def _mark(self, groups: tuple[Group, ...], cause: str) -> None:
        for group in groups:
            event = GroupLost(server=self._name, group_id=group.group_id, cause=cause)
            self._context.bus.publish(event)

    def _collected(self) -> tuple[Group, ...]:
        """Return the finished groups that the server has in its pool by its last known state."""
        server = self._state
        return self._not_trained_on(server) if server and server.state in FILLING else ()

    def _not_trained_on(self, server: Server) -> tuple[Group, ...]:
        """Return the groups whose rewards the server has, but has not trained on yet."""
        if any(step.step == server.step and step.update for step in server.steps):
            return ()  # the step's update is done
        return tuple(
            group
            for group in self._context.bus.state.groups.values()
            if group.server == self._name
            and group.sealed_at is not None
            and group.phase not in ("ABORTED", "FAILED")
            and not group.lost
            and group.episode_type != "eval"
            and group.step is not None
            and (group.engine_run, group.step) == (server.engine_run, server.step)
        )

    def _record_holdings(self) -> None:
        server = self._state
        opened = self._context.bus.state.open_groups()
        groups = [group for group in opened if group.server == self._name]
        held = sum(slot.phase in HELD for group in groups for slot in group.candidates)
        pool = server.pool if server is not None else None
        self._claimed = max(held, pool.running if pool is not None else 0)
        # Calls fail before a poll does, so the groups that had begun to generate count.
        generating = [group.group_id for group in groups if group.generating_at is not None]
        self._generating = tuple(generating)
        self._untrained = self._not_trained_on(server) if server is not None else ()

    def _raise_alert(self) -> None:
        self._unwatched = ()
        self._mark(self._untrained, "an engine restart")
        groups = self._context.bus.state.groups.values()
        ended = any(group.server == self._name and group.sealed_at for group in groups)
        lost = params_of(
            "tokens",
            server=self._name,
            claimed=self._claimed,
            open=len(self._generating),
            finished=len(self._untrained),
            rated=sum(group.source == "human" for group in self._untrained),
            tokens=self._keeps_tokens and ended,
        )
        if lost != params_of("tokens", server=self._name):
            affected = (*self._generating, *(group.group_id for group in self._untrained))
            key = f"tokens:{self._name}"
            replace_alert(self._context.bus, key, lost, groups=affected, server=self._name)


def _is_absent(groups: tuple[Group, ...], pool: PoolInfo) -> bool | None:
    """Return whether the pool has no episode of these groups; None if it is unknown."""
    details = pool.completed_tasks_details
    if details is None or (not details and pool.completed_episodes):
        return True if pool.completed_episodes == 0 else None
    ours = {slot.episode_uuid for group in groups for slot in group.candidates}
    return ours.isdisjoint(uuid for uuids in details.values() for uuid in uuids)


# --- a batch that does not end --------------------------------------------------------------------

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
