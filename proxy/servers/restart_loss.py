"""Names what a server lost with a restart: claimed episodes, open and finished groups, tokens.

Finished groups that no update trains on are marked as lost, also those of an engine that is stopped
from here before its update.
"""

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState
from core.events import GroupLost
from core.events.alerts import RestartLost
from core.state import Group, Server
from proxy.alerts import replace_alert
from proxy.context import ProxyContext, ServerHandle

HELD = frozenset({"claimed", "answered"})
"""Phases of a candidate whose episode its server still holds."""
FILLING = frozenset({"ROLLING", "ROLLING_POST"})
"""States in which a server gathers episodes that a stop discards."""
CAUSES = {EngineState.OFFLINE: "an engine stop", EngineState.BOOTING: "an engine restart"}
"""What discarded the episodes of a server that entered such a state while it gathered them."""


class RestartLoss:
    """Raises an alert as soon as a restarted server answers again.

    Args:
        context: The proxy's shared parts.
        server: The server.
        keeps_tokens: It keeps the tokens of episodes in memory: the embedded engine does.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle, *, keeps_tokens: bool) -> None:
        self._context = context
        self._server = server
        self._keeps_tokens = keeps_tokens
        self._told = False
        self._lost = False
        self._groups: tuple[str, ...] = ()
        self._untrained: tuple[Group, ...] = ()
        self._claimed = 0

    def seen(self, seen: ServerStatus) -> None:
        """Take in another look at the server, before it is published."""
        if not seen.reachable:
            if not self._lost:  # what it held when it went: users may have left since
                self._lost = True
                self._remember()
            return
        if seen.trouble != "restarted":
            self._told = self._lost = False
            if seen.state in CAUSES and not seen.trouble:
                self._mark_stopped(CAUSES[seen.state])
            return
        if not self._told:
            self._told, self._lost = True, False
            self._tell()

    def _mark_stopped(self, cause: str) -> None:
        state = self._context.bus.state
        server = state.servers.get(self._server.name)  # as it was before this look
        if server is None or (server.lost and server.seen_at is None):
            return  # it has not answered this proxy yet: an update may have come in between
        if server.state in FILLING:
            self._mark(_untrained(list(state.groups.values()), server), cause)

    def _mark(self, groups: tuple[Group, ...], cause: str) -> None:
        for one in groups:
            bus, name = self._context.bus, self._server.name
            bus.publish(GroupLost(server=name, group_id=one.group_id, cause=cause))

    def _remember(self) -> None:
        state, name = self._context.bus.state, self._server.name
        server = state.servers.get(name)
        groups = [one for one in state.open_groups() if one.server == name]
        held = sum(one.phase in HELD for group in groups for one in group.candidates)
        pool = server.pool if server is not None else None
        self._claimed = max(held, pool.running if pool is not None else 0)
        # Calls fail before a poll does: what matters is that a group had begun to generate.
        begun = [group for group in groups if group.generating_at is not None]
        self._groups = tuple(group.group_id for group in begun)
        self._untrained = _untrained(list(state.groups.values()), server) if server else ()

    def _tell(self) -> None:
        name = self._server.name
        if self._untrained:
            self._mark(self._untrained, "an engine restart")
        groups = self._context.bus.state.groups.values()
        ended = any(one.server == name and one.sealed_at for one in groups)
        lost = RestartLost(
            server=name,
            claimed=self._claimed,
            open=len(self._groups),
            finished=len(self._untrained),
            rated=sum(one.rating is not None for one in self._untrained),
            tokens=self._keeps_tokens and ended,
        )
        if lost != RestartLost(server=name):
            affected = (*self._groups, *(one.group_id for one in self._untrained))
            key = f"tokens:{name}"
            replace_alert(self._context.bus, key, lost, groups=affected, server=name)


def _untrained(groups: list[Group], server: Server) -> tuple[Group, ...]:
    """Groups whose rewards `server` has and did not train on yet."""
    if any(one.step == server.step and one.update for one in server.steps):
        return ()  # the update of the step is done
    return tuple(
        one
        for one in groups
        if one.server == server.name
        and one.sealed_at is not None
        and one.phase not in ("ABORTED", "FAILED")
        and not one.lost
        and one.episode_type != "eval"
        and one.step is not None
        and (one.engine_run, one.step) == (server.engine_run, server.step)
    )
