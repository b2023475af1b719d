"""Feed of the proxy's state: groups and rewards of the rows, states and updates of the engines."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from core.events import EngineChanged, Event, GroupOpened
from core.state import Group, State, reduce
from mock.control import Control, ControlDown, ControlRefused

log = logging.getLogger("mock")

AWAY = frozenset(("ROLLING_POST", "WEIGHT_SYNCING", "WEIGHT_EXPORTING"))
"""States in which a server accepts no new work for now."""
_MAX_GROUPS = 5_000
_FIRST_DELAY = 0.2
_LAST_DELAY = 5.0


class GroupFeed:
    """The proxy's state, current while `run` runs.

    Args:
        control: The control API.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._state: State | None = None
        self._first_seq = -1
        self._steps: dict[str, int] = {}
        self._groups: OrderedDict[str, str] = OrderedDict()
        self.ready = asyncio.Event()
        """Set after the first snapshot."""

    async def run(self) -> None:
        """Follow the events until cancelled, across broken connections."""
        delay = _FIRST_DELAY
        while True:
            try:
                if self._state is None:
                    self._begin(await self._control.snapshot())
                delay = _FIRST_DELAY
                await self._read()
            except ControlRefused as error:
                log.warning("the rewards of the rows are unknown: %s", error)
                return
            except ControlDown as error:
                log.debug("the feed is lost: %s", error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LAST_DELAY)

    def group(self, row_id: str) -> Group | None:
        """Return the group of a row."""
        return self.group_by_id(self._groups.get(row_id, ""))

    def group_by_id(self, group_id: str) -> Group | None:
        """Return a group while it is among the newest."""
        return self._state.groups.get(group_id) if self._state is not None else None

    def weights_of(self, group: Group) -> str:
        """Return the version of the weights that produced the answer that the user got."""
        if self._state is None:
            return ""
        index = group.returned if group.returned is not None else group.best
        return self._state.weights_of(group, index).text

    @property
    def syncing(self) -> bool:
        """True while no server accepts work and one will after its update."""
        servers = self._state.servers.values() if self._state is not None else ()
        states = [server.state for server in servers if not server.lost]
        return bool(states) and all(state in AWAY for state in states)

    @property
    def updates(self) -> int:
        """Number of policy updates of all servers since the first snapshot."""
        if self._state is None:
            return 0
        return sum(
            max(0, server.step - self._steps[name])
            for name, server in self._state.servers.items()
            if server.step is not None and name in self._steps
        )

    def _begin(self, state: State) -> None:
        if self._first_seq < 0:
            self._first_seq = state.seq
        else:  # groups opened while disconnected
            for group in state.groups.values():
                self._remember(group.row_id, group.group_id)
        self._state = state
        self._note_steps(state)
        self.ready.set()

    def _note_steps(self, state: State) -> None:
        """Record the step at which each server was first seen."""
        for name, server in state.servers.items():
            if server.step is not None:
                self._steps.setdefault(name, server.step)

    async def _read(self) -> None:
        state = self._state
        assert state is not None
        events = self._control.events(state.seq, state.run_id)
        try:
            async for item in events:
                if not isinstance(item, Event):
                    self._state = None
                    return
                if item.seq > state.seq:
                    reduce(state, item)
                    if isinstance(item, GroupOpened):
                        self._remember(item.row_id, item.group_id)
                    elif isinstance(item, EngineChanged):
                        self._note_steps(state)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _remember(self, row_id: str, group_id: str) -> None:
        if row_id:
            self._groups[row_id] = group_id
            self._groups.move_to_end(row_id)
            while len(self._groups) > _MAX_GROUPS:
                self._groups.popitem(last=False)


def reward_of(group: Group | None) -> Mapping[str, Any] | None:
    """Return the reward fields of a group; None while the group is open.

    `reward` is the reward of the answer that the user got, or null with a cause when none was sent.
    """
    if group is None or (group.sealed_at is None and group.open):
        return None
    fields: dict[str, Any] = {"group": group.group_id, "reward": None}
    rewards = [candidate.reward for candidate in group.candidates]
    if group.sealed_at is None or all(candidate is None for candidate in rewards):
        fields["unrewarded"] = group.cause or group.dead or group.phase.lower()
        return fields
    index = group.returned if group.returned is not None else group.best
    if index is not None and index < len(rewards):
        fields["reward"] = rewards[index]
    fields["rewards"] = rewards
    if group.dead:
        fields["dead"] = group.dead
    return fields
