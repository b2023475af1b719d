"""Raises the alert about groups without automatic rewards: their share and the newest cause."""

import asyncio
import logging

from ajet_swarm.common.text import one_line
from core.bus import Bus
from core.events import (
    Event,
    GroupClosed,
    GroupScored,
    RewardsChanged,
    ScoringAbstained,
)
from core.events.alerts import params_of
from proxy.alerts import clear_alert, show_alert

log = logging.getLogger(__name__)

KEY = "unscored"
EVERY = 1.0
"""Minimum seconds between two updates of the alert."""
WINDOW = 10
"""Number of newest groups that are counted."""
_CAUSE_ALERTS = ("rewards", "judge")
"""Keys of alerts that already report the fault: rewards that did not load, a failing judge."""


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
        self._outcomes: dict[str, ScoringAbstained | None] = {}
        """The newest abstention of each group, None for automatic rewards; oldest first, at most
        `WINDOW`."""
        self._version = bus.state.rewards.version
        bus.listen(self._event, GroupScored, ScoringAbstained, GroupClosed, RewardsChanged)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._update()
            await asyncio.sleep(EVERY)

    def _event(self, event: Event, dirty: frozenset[str]) -> None:
        if isinstance(event, ScoringAbstained | GroupScored):
            self._outcomes.pop(event.group_id, None)
            self._outcomes[event.group_id] = event if isinstance(event, ScoringAbstained) else None
            if len(self._outcomes) > WINDOW:
                del self._outcomes[next(iter(self._outcomes))]
        elif isinstance(event, RewardsChanged) and event.ok and event.version != self._version:
            self._version = event.version
            self._forget_closed()
        self._changed.set()

    def _forget_closed(self) -> None:
        """Forget closed groups: their abstentions do not concern the version that scores now."""
        groups = self._bus.state.groups
        self._outcomes = {
            group_id: abstained
            for group_id, abstained in self._outcomes.items()
            if abstained and group_id in groups and groups[group_id].open
        }

    def _update(self) -> None:
        unscored = {name: event for name, event in self._outcomes.items() if event is not None}
        state = self._bus.state
        if not unscored or any(key in state.alerts for key in _CAUSE_ALERTS):
            clear_alert(self._bus, KEY)
            return
        count, of = len(unscored), len(self._outcomes)
        newest = next(reversed(unscored.values()))
        params = params_of(
            "unscored",
            count=count,
            of=of,
            error=one_line(f"{newest.part}: {newest.cause}", 160),
            waiting=sum(bool(group.abstained) for group in state.waiting()),
            time_limit=self._limit if newest.late else 0.0,
        )
        level = "error" if 2 * count >= of else "warning"
        show_alert(self._bus, KEY, params, level=level, groups=tuple(unscored))
