"""Detection of what a server lost in a restart: claimed episodes, open and finished groups, tokens.

Finished groups that no update trains on are marked as lost, including those of an engine that this
proxy stops before its update, and those of an engine that stopped while no proxy watched it.
"""

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import GroupLost
from core.events.alerts import params_of
from core.state import Group, Server
from proxy.alerts import replace_alert
from proxy.context import ProxyContext, ServerHandle

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


class RestartLoss:
    """Raises an alert as soon as a restarted server answers again.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        keeps_tokens: Whether it stores the tokens of episodes in memory, as the embedded engine.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle, *, keeps_tokens: bool) -> None:
        self._context = context
        self._server = server
        self._keeps_tokens = keeps_tokens
        self._alert_raised = False
        self._is_down = False
        self._groups: tuple[str, ...] = ()
        self._untrained: tuple[Group, ...] = ()
        self._claimed = 0
        self._is_known = False
        """The server has answered this proxy."""
        self._unwatched: tuple[Group, ...] = ()
        """Finished groups of the previous proxy whose fate is not known yet."""
        self._was_off = False
        """The engine was off since this proxy's start, so the pool of `_unwatched` is gone."""
        self._absent_since: float | None = None

    def on_status(self, status: ServerStatus) -> None:
        """Handle a new status of the server, before it is published."""
        if not status.reachable:
            if not self._is_down:  # record it now: users may disconnect meanwhile
                self._is_down = True
                self._record_holdings()
            return
        if not self._is_known:
            self._is_known = True
            self._unwatched = self._finished_before()
        self._was_off = self._was_off or status.state in CAUSES
        if status.trouble != "restarted":
            self._alert_raised = self._is_down = False
            if status.state in CAUSES and not status.trouble:
                self._mark_stopped(CAUSES[status.state])
            return
        if not self._alert_raised:
            self._alert_raised, self._is_down = True, False
            self._raise_alert()

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
        elif not status.state.rolling:
            self._decide(lost=False)  # an update is in progress
        elif status.step:
            if status.step > step:
                self._decide(lost=False)
            elif pool is not None and pool_at > status.since and not pool.stale:
                self._check_pool(pool)

    def _check_pool(self, pool: PoolInfo) -> None:
        absent = _is_absent(self._unwatched, pool)
        if absent is None:
            return
        if not absent or self._was_off:
            self._decide(lost=absent)
            return
        now = self._context.clock()
        if self._absent_since is None:
            self._absent_since = now
        elif now - self._absent_since >= ABSENT_FOR:
            self._decide(lost=True)

    def _saved_step(self) -> int | None:
        """Return the number of updates in the server's saved weights; None if unknown."""
        server = self._context.bus.state.servers.get(self._server.name)
        if server is None or server.checkpoints is None:
            return None
        latest = next((one for one in server.checkpoints if one.name == LATEST), None)
        if latest is None:
            return None if server.checkpoints_more else 0
        return None if latest.damaged else latest.step

    def _decide(self, *, lost: bool) -> None:
        groups, self._unwatched = self._unwatched, ()
        if lost:
            self._untrained, self._groups, self._claimed = groups, (), 0
            self._raise_alert()

    def _finished_before(self) -> tuple[Group, ...]:
        """Return the finished groups that the server had in its pool when it was last watched."""
        state = self._context.bus.state
        server = state.servers.get(self._server.name)  # as the previous proxy left it
        if server is None or server.state not in FILLING:
            return ()
        groups = _untrained(list(state.groups.values()), server)
        return tuple(group for group in groups if group.phase == "DONE")

    def _mark_stopped(self, cause: str) -> None:
        state = self._context.bus.state
        server = state.servers.get(self._server.name)  # the state before this status
        if server is None or (server.lost and server.seen_at is None):
            return  # not seen by this proxy yet: an update may have happened
        if server.state in FILLING:
            self._unwatched = ()
            self._mark(_untrained(list(state.groups.values()), server), cause)

    def _mark(self, groups: tuple[Group, ...], cause: str) -> None:
        for group in groups:
            bus, name = self._context.bus, self._server.name
            bus.publish(GroupLost(server=name, group_id=group.group_id, cause=cause))

    def _record_holdings(self) -> None:
        state, name = self._context.bus.state, self._server.name
        server = state.servers.get(name)
        groups = [group_ for group_ in state.open_groups() if group_.server == name]
        held = sum(group_.phase in HELD for group in groups for group_ in group.candidates)
        pool = server.pool if server is not None else None
        self._claimed = max(held, pool.running if pool is not None else 0)
        # Calls fail before a poll does, so the groups that had begun to generate count.
        generating = [group for group in groups if group.generating_at is not None]
        self._groups = tuple(group.group_id for group in generating)
        self._untrained = _untrained(list(state.groups.values()), server) if server else ()

    def _raise_alert(self) -> None:
        name = self._server.name
        self._unwatched = ()
        if self._untrained:
            self._mark(self._untrained, "an engine restart")
        groups = self._context.bus.state.groups.values()
        ended = any(one.server == name and one.sealed_at for one in groups)
        lost = params_of(
            "tokens",
            server=name,
            claimed=self._claimed,
            open=len(self._groups),
            finished=len(self._untrained),
            rated=sum(one.rating is not None for one in self._untrained),
            tokens=self._keeps_tokens and ended,
        )
        if lost != params_of("tokens", server=name):
            affected = (*self._groups, *(one.group_id for one in self._untrained))
            key = f"tokens:{name}"
            replace_alert(self._context.bus, key, lost, groups=affected, server=name)


def _untrained(groups: list[Group], server: Server) -> tuple[Group, ...]:
    """Return the groups whose rewards `server` has, but has not trained on yet."""
    if any(group.step == server.step and group.update for group in server.steps):
        return ()  # the step's update is done
    return tuple(
        group
        for group in groups
        if group.server == server.name
        and group.sealed_at is not None
        and group.phase not in ("ABORTED", "FAILED")
        and not group.lost
        and group.episode_type != "eval"
        and group.step is not None
        and (group.engine_run, group.step) == (server.engine_run, server.step)
    )


def _is_absent(groups: tuple[Group, ...], pool: PoolInfo) -> bool | None:
    """Return whether the pool has no episode of these groups; None if it is unknown."""
    details = pool.completed_tasks_details
    if details is None or (not details and pool.completed_episodes):
        return True if pool.completed_episodes == 0 else None
    ours = {one.episode_uuid for group in groups for one in group.candidates}
    return ours.isdisjoint(uuid for uuids in details.values() for uuid in uuids)
