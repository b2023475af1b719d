"""The watch over the rewards that are sent: off the answers' path, told to journal and screens."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from core.advantage import is_dead
from core.bus import Bus
from core.events import AlertCleared, AlertRaised, Event, GroupSealed, RewardsWatched, WatchFigure
from core.state import Group
from core.text import one_line
from proxy.rewards.watch_hacking import WINDOW, HackingWatch
from proxy.rewards.watch_traits import WORDS, Grams, Traits, lengths
from proxy.rewards.watch_values import Values

log = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two tellings."""
QUEUE = 4_000
"""Groups that wait at most; the oldest are left out."""
LOOKED = 20
"""Groups between two tellings whose texts are read; correlations gain nothing from more."""
AT_ONCE = 20
"""Groups whose rewards alone are counted in one turn of the loop."""
CALM = 50
"""Groups without an outlier after which its alert is over."""


class RewardGuard:
    """Looks at sealed groups a little later: at every reward, and at texts.

    Between two tellings it reads the texts of `LOOKED` groups at most, evenly spread.

    Args:
        bus: Where groups come from and findings go.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: deque[str] = deque(maxlen=QUEUE)
        self._some = asyncio.Event()
        self._traits = Traits()
        self._hacking = HackingWatch()
        self._values = Values()
        self._raised: set[str] = set()
        self._calm = 0
        self._told: object = None

    async def run(self) -> None:
        """Watch until cancelled; begins with what the state already has."""
        sealed = [one.group_id for one in self._bus.state.groups.values() if one.sealed_at]
        self._waiting.extend(sealed[-WINDOW:])
        self._bus.listen(self._sealed, GroupSealed)
        while True:
            self._some.clear()
            await self._all_waiting()
            self._tell()
            await self._some.wait()
            await asyncio.sleep(EVERY)

    def _sealed(self, event: Event, dirty: frozenset[str]) -> None:
        assert isinstance(event, GroupSealed)
        self._waiting.append(event.group_id)
        self._some.set()

    async def _all_waiting(self) -> None:
        batch = list(self._waiting)
        self._waiting.clear()
        stride = -(-len(batch) // LOOKED)
        for number, group_id in enumerate(batch):
            looked = number % stride == 0
            self._next(group_id, looked)
            if looked or number % AT_ONCE == 0:
                await asyncio.sleep(0)

    def _next(self, group_id: str, texts: bool) -> None:
        group = self._bus.state.groups.get(group_id)
        if group is None:
            return
        try:
            self.take(group, texts)
        except Exception:  # a watch must never be what stops a proxy
            log.exception("group %s could not be watched", group.group_id)

    def take(self, group: Group, texts: bool = True) -> None:
        """Count one sealed group; what a person gave says nothing of the reward's parts.

        Args:
            group: The group.
            texts: Its answers are read too, not only its rewards.
        """
        if group.source == "human":
            return
        sent = [one for one in group.candidates if one.reward is not None]
        rewards = [one.reward for one in sent if one.reward is not None]
        if not rewards:
            return
        indices = [one.index for one in sent]
        far = self._values.take(group.group_id, list(zip(indices, rewards, strict=True)))
        self._calm = 0 if far else self._calm + 1
        if not texts or is_dead(rewards):
            return
        sizes = lengths([one.tokens for one in sent], [one.text for one in sent])
        found = [self._traits.of(one.text, size) for one, size in zip(sent, sizes, strict=True)]
        self._hacking.take(group.group_id, rewards, [traits for traits, _ in found])
        best = max(range(len(rewards)), key=rewards.__getitem__)
        winner: Grams = found[best][1]
        self._traits.won(winner)

    # --- telling --------------------------------------------------------------------------------

    def _tell(self) -> None:
        if not self._values.count:
            return
        figures = self._hacking.figures()
        low, high = self._values.span
        event = RewardsWatched(
            figures=figures,
            groups=self._hacking.groups,
            low=low,
            high=high,
            mean=self._values.mean,
            std=self._values.std,
            outliers=tuple(self._values.outliers)[-5:],
        )
        made_of = (figures, low, high, self._values.mean, event.outliers)
        if made_of != self._told:
            self._told = made_of
            self._bus.publish(event)
        for figure in figures:
            self._alert(f"hacking:{figure.trait}", figure.alert, partial(_hacked, figure))
        trouble = self._values.trouble()
        self._alert("rewards:scale", bool(trouble), lambda: (trouble, _SCALE))
        far = bool(self._values.outliers) and self._calm < CALM
        self._alert("rewards:outlier", far, self._outlying)

    def _alert(self, key: str, on: bool, words: Callable[[], tuple[str, str]]) -> None:
        """Raise or clear; one that was dismissed stays so until its cause has gone."""
        if on and key not in self._raised:
            self._raised.add(key)
            cause, todo = words()
            self._bus.publish(AlertRaised(key=key, cause=cause, todo=todo))
        elif not on and key in self._raised:
            self._raised.discard(key)
            if key in self._bus.state.alerts:
                self._bus.publish(AlertCleared(key=key))

    def _outlying(self) -> tuple[str, str]:
        group, index, value, z = self._values.outliers[-1]
        cause = (
            f"reward {value:.4g} of candidate {index + 1} in group {one_line(group, 40)} is "
            f"{abs(z):.1f} deviations from the others"
        )
        return cause, "Look at the group: Requests, then what its parts say"


_SCALE = "See on Rewards what gives them: weights that sum to 1, and hooks that return 0 to 1"


def _hacked(one: WatchFigure) -> tuple[str, str]:
    assert one.r is not None
    cause = (
        f"rewards follow {WORDS[one.trait]}: r {one.r:+.2f} (95 % {one.low:+.2f} to "
        f"{one.high:+.2f}) over {one.n} answers"
    )
    groups = ", ".join(one_line(group, 40) for group in one.groups)
    return cause, f"Look at {groups}: is the winner better, or only that? Rewards has the figures"
