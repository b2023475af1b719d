"""The monitor of sealed rewards; it runs in the background and publishes its findings."""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence

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
from proxy.rewards.monitor.outliers import RewardDistribution, SignalMonitor
from proxy.rewards.part import has_fixed_rule

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
