"""The monitor of sealed rewards; it runs in the background and publishes its findings.

Outliers among rewards, a scale that an engine does not expect, and rewards without a signal.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from core.bus import Bus
from core.events import Event, GroupSealed, Part, RewardsWatched, WatchFigure
from core.events.alerts import AlertParams, params_of
from core.scoring.advantage import is_dead, lacks_signal
from core.state import Group
from proxy.alerts import clear_alert, show_alert
from proxy.rewards.model.spec import combine
from proxy.rewards.monitor.hacking import (
    TRAITS,
    WINDOW,
    HackingMonitor,
    lengths,
    reference_grams,
    traits_of,
)
from proxy.rewards.part import has_fixed_rule

MIN_REWARDS = 30
"""Rewards, in groups whose rewards differ, that are needed for a comparison with the run."""
FAR = 4.0
"""Deviations from the run's mean that make a reward an outlier."""
LONE = 6.0
"""Deviations from the few rewards of its own group that make a reward an outlier."""
MIN_RANGE = 0.02
"""A smaller range of rewards hardly distinguishes answers."""
MAX_OUTLIERS = 20
MAX_NAMED = 200
"""Maximum number of groups without a signal that an alert names."""
STEPS = 3
"""Number of newest global steps that are counted."""
MIN_GROUPS = 10
"""Number of groups needed for an alert."""
HIGH = 0.9
"""Share of groups without a signal that raises an alert."""
LOW = 0.8
"""Share below which the alert ends."""

Outlier = tuple[str, int, float, float]
"""Group, candidate, reward, and its distance in deviations."""


class _GroupRewards(NamedTuple):
    """The rewards of one group."""

    values: Sequence[float]
    has_outlier: bool


class RewardDistribution:
    """Distribution of the rewards of the newest groups, in constant memory."""

    def __init__(self, window: int = WINDOW) -> None:
        self._rows: deque[_GroupRewards] = deque(maxlen=window)
        self.outliers: deque[Outlier] = deque(maxlen=MAX_OUTLIERS)

    @property
    def count(self) -> int:
        """Number of rewards in the window."""
        return len(_values(self._rows))

    @property
    def mean(self) -> float:
        """Their mean; 0 without rewards."""
        return _mean_and_deviation(_values(self._rows))[0]

    @property
    def std(self) -> float:
        """Their population standard deviation."""
        return _mean_and_deviation(_values(self._rows))[1]

    @property
    def span(self) -> tuple[float, float]:
        """Their minimum and maximum; 0 and 0 without rewards."""
        values = _values(self._rows) or [0.0]
        return min(values), max(values)

    def take(
        self, group_id: str, rewards: Sequence[tuple[int, float]], fixed_rule: bool = False
    ) -> bool:
        """Compare a group's rewards with those of earlier groups, then count them.

        Args:
            group_id: Id of the group.
            rewards: Candidate and reward of each answer.
            fixed_rule: Whether a fixed rule gives rewards from 0 to 1. A reward in that range is
                then no outlier: the first wrong answer after many right ones is just wrong.

        Returns:
            Whether one of the rewards is an outlier.
        """
        values = [value for _, value in rewards]
        low, high = min(values), max(values)
        outliers: list[Outlier] = []
        if not (fixed_rule and low >= 0.0 and high <= 1.0):
            outliers = self._outliers(group_id, rewards, low, high)
            self.outliers.extend(outliers)
        self._rows.append(_GroupRewards(values, bool(outliers)))
        return bool(outliers)

    def _outliers(
        self, group_id: str, rewards: Sequence[tuple[int, float]], low: float, high: float
    ) -> list[Outlier]:
        """Return rewards far from the run's mean, or the one far from all others of its group.

        Mean and deviation are those of the groups whose rewards differ: among groups of equal
        rewards, whose deviation is 0, the first differing rewards would all be outliers. A reward
        that ordinary groups have had too is just a bad or good answer: where rewards range from 0
        to 1 with a mean near 1, a 0 is far from the mean but not unusual.
        """
        signal = _values(row for row in self._rows if not is_dead(row.values))
        if len(signal) < MIN_REWARDS:
            return []
        mean, std = _mean_and_deviation(signal)
        limit = FAR
        distances = [(index, value, (value - mean) / std) for index, value in rewards]
        if max(high - mean, mean - low) < FAR * std:
            if len(rewards) < 4 or high - low < LONE * std / 2:
                return []
            limit, distances = LONE, _distances_from_others(rewards, std)
        ordinary = _values(row for row in self._rows if not row.has_outlier)
        least, most = min(ordinary, default=math.inf), max(ordinary, default=-math.inf)
        return [
            (group_id, index, value, distance)
            for index, value, distance in distances
            if abs(distance) >= limit and not least <= value <= most
        ]

    def trouble(self) -> AlertParams | None:
        """Return the alert about an odd scale; None if the scale is as expected."""
        if self.count < MIN_REWARDS:
            return None
        low, high = self.span
        narrow = high - low < MIN_RANGE
        if low >= -1e-6 and high <= 1 + 1e-6 and not narrow:
            return None
        beyond = low < -1e-6 or high > 1 + 1e-6
        return params_of(
            "reward_scale",
            low=float(f"{low:.4g}"),
            high=float(f"{high:.4g}"),
            narrow=narrow and not beyond,
        )


def _values(rows: Iterable[_GroupRewards]) -> list[float]:
    return [value for row in rows for value in row.values]


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and population standard deviation; 0 and 0 without rewards."""
    if not values:
        return 0.0, 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _distances_from_others(
    rewards: Sequence[tuple[int, float]], run_std: float
) -> list[tuple[int, float, float]]:
    """Return each reward with its distance, in deviations, from the others of its group.

    The deviation of the others counts as at least half the run's: three rewards that are alike by
    chance would make any fourth an outlier.
    """
    distances = []
    for index, value in rewards:
        mean, std = _mean_and_deviation([reward for other, reward in rewards if other != index])
        distances.append((index, value, (value - mean) / max(std, run_std / 2, 1e-9)))
    return distances


class SignalMonitor:
    """Counts groups by server and global step, in constant time and memory."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, tuple[int, int]]] = {}
        """Groups without a signal and all groups, by server and step; newest steps last."""
        self._dead: dict[str, deque[tuple[int, str]]] = {}
        """Step and id of the newest groups without a signal, by server."""
        self._raised: set[str] = set()

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers of the counted groups."""
        return tuple(self._counts)

    def take(self, server: str, step: int, dead: bool, group_id: str = "") -> None:
        """Count one sealed group.

        Args:
            server: Name of its server.
            step: Global step of the policy that answered.
            dead: Whether it teaches nothing or almost nothing.
            group_id: Id of the group.
        """
        if dead:
            self._dead.setdefault(server, deque(maxlen=MAX_NAMED)).append((step, group_id))
        counts = self._counts.setdefault(server, {})
        without, groups = counts.get(step, (0, 0))
        counts[step] = without + dead, groups + 1
        if len(counts) > STEPS:
            del counts[next(iter(counts))]

    def alert(self, server: str) -> tuple[AlertParams | None, tuple[str, ...]]:
        """Return the alert if nearly all groups of the newest steps have no signal, and which."""
        counts = self._counts.get(server, {})
        without, groups = (sum(column) for column in zip(*counts.values(), strict=True))
        bound = LOW if server in self._raised else HIGH
        if len(counts) < STEPS or groups < MIN_GROUPS or without < bound * groups:
            self._raised.discard(server)
            return None, ()
        self._raised.add(server)
        names = tuple([name for step, name in self._dead.get(server, ()) if step in counts])
        return params_of("dead", dead=without, groups=groups, steps=STEPS), names


log = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two reports."""
QUEUE = 4_000
"""Maximum number of groups in the queue; the oldest are dropped."""
TEXTS_READ = 20
"""Groups whose texts are read between two reports; more would not improve the correlations."""
YIELD_EVERY = 20
"""Number of groups without texts to read that are counted before other tasks may run."""
BY_NATURE: Mapping[str, frozenset[str]] = {
    "length": frozenset({"length", "relevance", "diversity"}),
    "repetition": frozenset({"length"}),
    "reference": frozenset({"reference", "exact", "numeric", "relevance"}),
}
"""Trait -> built-in kinds that reward it by their nature. Of those that reward length, `length`
does so on purpose, and the others because a longer answer contains more words of its query and
shares a smaller part of itself with others. A long answer also repeats more of itself, and a
reference contains words of the query."""
CALM_GROUPS = 50
"""Groups without an outlier after which the alert ends."""


class RewardMonitor:
    """Examines sealed groups a little later: the rewards of all, and the texts of some.

    Between two reports it reads the texts of at most `TEXTS_READ` groups, evenly spread.

    Args:
        bus: Source of the groups, and destination of the findings.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        sealed = [group.group_id for group in bus.state.groups.values() if group.sealed_at]
        self._waiting = deque(sealed[-WINDOW:], maxlen=QUEUE)
        self._new_groups = asyncio.Event()
        self._hacking = HackingMonitor()
        self._values = RewardDistribution()
        self._signal = SignalMonitor()
        self._calm = 0
        self._published: object = None
        bus.listen(self._sealed, GroupSealed)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._new_groups.clear()
            await self._examine_waiting()
            self.report()
            await self._new_groups.wait()
            await asyncio.sleep(EVERY)

    def _sealed(self, event: Event, dirty: frozenset[str]) -> None:
        assert isinstance(event, GroupSealed)
        self._waiting.append(event.group_id)
        self._new_groups.set()

    async def _examine_waiting(self) -> None:
        batch = list(self._waiting)
        self._waiting.clear()
        stride = -(-len(batch) // TEXTS_READ)
        for number, group_id in enumerate(batch):
            read_texts = number % stride == 0
            self._examine(group_id, read_texts)
            if read_texts or number % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _examine(self, group_id: str, texts: bool) -> None:
        group = self._bus.state.groups.get(group_id)
        if group is None:
            return
        try:
            self.take(group, texts)
        except Exception:  # a monitor must never stop a proxy
            log.exception("group %s could not be watched", group.group_id)

    def take(self, group: Group, texts: bool = True) -> None:
        """Count one sealed group, unless a person rated it: the parts did not give its rewards.

        Args:
            group: The group.
            texts: Whether to read its answers, besides its rewards.
        """
        if group.source == "human":
            return
        sent = [candidate for candidate in group.candidates if candidate.reward is not None]
        rewards = [candidate.reward for candidate in sent if candidate.reward is not None]
        if not rewards:
            return
        indices = [candidate.index for candidate in sent]
        if group.step is not None:
            faint = bool(lacks_signal(rewards, group.damping))
            self._signal.take(group.server, group.step, faint, group.group_id)
        by_index = list(zip(indices, rewards, strict=True))
        has_outlier = self._values.take(group.group_id, by_index, self._has_fixed_rule())
        self._calm = 0 if has_outlier else self._calm + 1
        if not texts or is_dead(rewards):
            return
        answers = [candidate.text for candidate in sent]
        sizes = lengths([candidate.tokens for candidate in sent], answers)
        reference = reference_grams(group.reference)
        traits = [
            traits_of(text, size, reference) for text, size in zip(answers, sizes, strict=True)
        ]
        adjusted: dict[str, list[float]] = {}
        for trait, column in zip(TRAITS, zip(*traits, strict=True), strict=True):
            names = self._natural_parts(trait) if min(column) < max(column) else ()
            if names:
                adjusted[trait] = [_without(candidate.parts, names) for candidate in sent]
        self._hacking.take(group.group_id, rewards, traits, adjusted)

    def _natural_parts(self, trait: str) -> frozenset[str]:
        """Return the names of the parts that reward a trait by their nature."""
        kinds = BY_NATURE.get(trait, frozenset())
        parts = self._bus.state.rewards.parts
        return frozenset([part.name for part in parts if part.enabled and part.kind in kinds])

    def _has_fixed_rule(self) -> bool:
        """Return whether all parts in use give values from 0 to 1 by a fixed rule."""
        kinds = {part.kind for part in self._bus.state.rewards.parts if part.enabled}
        return bool(kinds) and all(map(has_fixed_rule, kinds))

    # --- reporting ------------------------------------------------------------------------------

    def report(self) -> None:
        """Publish the figures; raise and end alerts."""
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
        content = (figures, low, high, self._values.mean, event.outliers)
        if content != self._published:
            self._published = content
            self._bus.publish(event)
        for figure in figures:
            alert = None
            if figure.alert:
                alert = _hacking(figure, sorted(self._natural_parts(figure.trait)))
            self._alert(f"hacking:{figure.trait}", alert, figure.groups)
        for server in self._signal.servers:
            self._alert(f"dead:{server}", *self._signal.alert(server))
        self._alert("rewards:scale", self._values.trouble())
        if self._values.outliers and self._calm < CALM_GROUPS:
            newest = self._values.outliers[-1]
            self._alert("rewards:outlier", _outlier(*newest), newest[:1])
        else:
            self._alert("rewards:outlier", None)

    def _alert(self, key: str, params: AlertParams | None, groups: Sequence[str] = ()) -> None:
        """Raise the alert with the present figures; clear it for None."""
        if params is not None:
            show_alert(self._bus, key, params, groups=groups)
        else:
            clear_alert(self._bus, key)


def _outlier(group: str, index: int, value: float, z: float) -> AlertParams:
    return params_of(
        "reward_outlier",
        group=group,
        candidate=index + 1,
        reward=float(f"{value:.4g}"),
        deviations=round(abs(z), 1),
    )


def _without(parts: Sequence[Part], names: Collection[str]) -> float:
    """Return the reward of the other parts alone."""
    return combine([part for part in parts if part.name not in names])


def _hacking(figure: WatchFigure, parts: Sequence[str]) -> AlertParams:
    """Return the alert about one trait, with the figures as they are shown."""
    assert figure.r is not None
    return params_of(
        "hacking",
        trait=figure.trait,
        r=round(figure.r, 2),
        low=round(figure.low, 2),
        high=round(figure.high, 2),
        answers=figure.n,
        groups=figure.groups,
        parts=tuple(parts),
    )
