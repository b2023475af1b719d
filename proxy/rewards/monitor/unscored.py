"""The alert about groups without automatic rewards: their share, the newest cause, the remedy."""

import asyncio
import logging

import msgspec

from ajet_swarm.common.text import one_line
from core.bus import Bus
from core.events import (
    AlertRaised,
    Event,
    GroupClosed,
    GroupScored,
    RewardsChanged,
    ScoringAbstained,
)
from proxy.alerts import clear_alert, show_alert

log = logging.getLogger(__name__)

KEY = "unscored"
EVERY = 1.0
"""Minimum seconds between two updates of the alert."""
WINDOW = 10
"""Number of newest groups that are counted."""
_BY_ANOTHER = ("rewards", "judge")
"""Alerts that name the fault already: rewards that did not load, a judge in trouble."""


class _Outcome(msgspec.Struct):
    """The newest scoring of one group."""

    cause: str = ""
    """Part and cause of the abstention; empty when the group has automatic rewards."""
    late: bool = False
    """The rewards exceeded their time limit."""


class UnscoredMonitor:
    """Raises the alert `unscored` while groups get no automatic rewards, and clears it.

    Args:
        bus: Source of the scoring events, and destination of the alert.
        limit: Time limit of one group's rewards in seconds.
    """

    def __init__(self, bus: Bus, limit: float) -> None:
        self._bus = bus
        self._limit = limit
        self._changed = asyncio.Event()
        self._outcomes: dict[str, _Outcome] = {}
        """By group id, oldest first, at most `WINDOW`."""
        self._version = bus.state.rewards.version

    async def run(self) -> None:
        """Run until cancelled."""
        self._bus.listen(self._event, GroupScored, ScoringAbstained, GroupClosed, RewardsChanged)
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._update()
            await asyncio.sleep(EVERY)

    def _event(self, event: Event, dirty: frozenset[str]) -> None:
        if isinstance(event, ScoringAbstained):
            self._count(event.group_id, _Outcome(f"{event.part}: {event.cause}", event.late))
        elif isinstance(event, GroupScored):
            self._count(event.group_id, _Outcome())
        elif isinstance(event, RewardsChanged) and event.ok and event.version != self._version:
            self._version = event.version
            self._forget_closed()
        self._changed.set()

    def _count(self, group_id: str, outcome: _Outcome) -> None:
        self._outcomes.pop(group_id, None)
        self._outcomes[group_id] = outcome
        if len(self._outcomes) > WINDOW:
            del self._outcomes[next(iter(self._outcomes))]

    def _forget_closed(self) -> None:
        """Forget closed groups: another version scores now, and their abstentions are past."""
        groups = self._bus.state.groups
        self._outcomes = {
            group_id: outcome
            for group_id, outcome in self._outcomes.items()
            if outcome.cause and group_id in groups and groups[group_id].open
        }

    def _update(self) -> None:
        alert = self._alert()
        if alert is None:
            clear_alert(self._bus, KEY)
        else:
            show_alert(
                self._bus,
                KEY,
                alert.cause,
                alert.todo,
                level=alert.level,
                groups=alert.groups,
            )

    def _alert(self) -> AlertRaised | None:
        state = self._bus.state
        unscored = [one for one in self._outcomes.values() if one.cause]
        if not unscored or any(key in state.alerts for key in _BY_ANOTHER):
            return None
        count, of, newest = len(unscored), len(self._outcomes), unscored[-1]
        share = "the last group has" if of == 1 else f"{count} of the last {of} groups have"
        cause = f"{share} no automatic reward and trains nothing: {one_line(newest.cause, 160)}"
        waiting = sum(bool(one.abstained) for one in state.waiting())
        if waiting:
            cause += f"; {waiting} open group{' waits' if waiting == 1 else 's wait'} for you"
        mend = "Save a corrected version: open groups are re-scored with it (6 shows the fault)"
        if newest.late:
            mend = (
                f"Make it faster, or raise rewards.time_limit (now {self._limit:g} s) and restart "
                "the proxy"
            )
        todo = f"{mend}. On a group (2): `S` re-scores, `x` aborts, or rate it by hand"
        level = "error" if 2 * count >= of else "warning"
        groups = tuple([group_id for group_id, one in self._outcomes.items() if one.cause])
        return AlertRaised(key=KEY, cause=cause, todo=todo, level=level, groups=groups)
