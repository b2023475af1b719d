"""The monitor of sealed rewards; it runs in the background and publishes its findings."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence

from core.bus import Bus
from core.events import Event, GroupSealed, Part, RewardsWatched, WatchFigure
from core.events.alerts import AlertParams, RewardHacking, RewardOutlier
from core.scoring.advantage import is_dead, lacks_signal
from core.state import Group
from proxy.alerts import clear_alert, show_alert
from proxy.rewards.model.spec import combine
from proxy.rewards.monitor.hacking import WINDOW, HackingMonitor
from proxy.rewards.monitor.keywords import TRAIT as KEYWORD
from proxy.rewards.monitor.keywords import KeywordMonitor
from proxy.rewards.monitor.outliers import RewardDistribution
from proxy.rewards.monitor.signal import SignalMonitor
from proxy.rewards.monitor.traits import TRAITS, TraitReader, lengths, reference_grams, words_of
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
_LENGTH = frozenset({"length", "relevance", "diversity"})
_REFERENCE = frozenset({"reference", "exact", "numeric"})
BY_NATURE: Mapping[str, frozenset[str]] = {
    "length": _LENGTH,
    "repetition": frozenset({"length"}),
    "markup": frozenset({"format", "code"}),
    "reference": _REFERENCE | {"relevance"},
    "keyword": _LENGTH | _REFERENCE | {"format", "code", "language"},
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
        sealed = [one.group_id for one in bus.state.groups.values() if one.sealed_at]
        self._waiting = deque(sealed[-WINDOW:], maxlen=QUEUE)
        self._new_groups = asyncio.Event()
        self._traits = TraitReader()
        self._hacking = HackingMonitor()
        self._keywords = KeywordMonitor()
        self._values = RewardDistribution()
        self._signal = SignalMonitor()
        self._calm = 0
        self._published: object = None
        self._fixed_rule: tuple[object, bool] = (None, False)
        """Parts of the rewards, and whether the values of all follow a fixed rule."""
        self._natural: tuple[object, Mapping[str, tuple[str, ...]]] = (None, {})
        """Parts of the rewards, and for each trait the names of those that reward it."""
        bus.listen(self._sealed, GroupSealed)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._new_groups.clear()
            await self._examine_waiting()
            await asyncio.to_thread(self._keywords.count)
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
        sent = [one for one in group.candidates if one.reward is not None]
        rewards = [one.reward for one in sent if one.reward is not None]
        if not rewards:
            return
        indices = [one.index for one in sent]
        if group.step is not None:
            faint = bool(lacks_signal(rewards, group.damping))
            self._signal.take(group.server, group.step, faint, group.group_id)
        by_index = list(zip(indices, rewards, strict=True))
        has_outlier = self._values.take(group.group_id, by_index, self._has_fixed_rule())
        self._calm = 0 if has_outlier else self._calm + 1
        if not texts or is_dead(rewards):
            return
        sizes = lengths([one.tokens for one in sent], [one.text for one in sent])
        copied = reference_grams(group.reference)
        measured = [
            self._traits.of(one.text, size, copied) for one, size in zip(sent, sizes, strict=True)
        ]
        traits = [one.traits for one in measured]
        adjusted: dict[str, list[float]] = {}
        if natural := self._by_nature():
            columns = zip(TRAITS, zip(*traits, strict=True), strict=True)
            varying = {trait for trait, some in columns if min(some) < max(some)} | {KEYWORD}
            adjusted = {
                trait: [_without(one.parts, names) for one in sent]
                for trait, names in natural.items()
                if trait in varying
            }
        self._hacking.take(group.group_id, rewards, traits, adjusted)
        self._keywords.take(
            group.group_id,
            rewards,
            [one.words for one in measured],
            {*words_of(group.query), *words_of(group.reference or "")},
            adjusted.get("keyword"),
        )
        best = max(range(len(rewards)), key=rewards.__getitem__)
        self._traits.add_winner(measured[best].grams)

    def _by_nature(self) -> Mapping[str, tuple[str, ...]]:
        """Return for each trait the names of the parts that reward it by their nature."""
        parts = self._bus.state.rewards.parts
        if parts is not self._natural[0]:
            enabled = [one for one in parts if one.enabled]
            names = {
                trait: tuple([one.name for one in enabled if one.kind in kinds])
                for trait, kinds in BY_NATURE.items()
            }
            self._natural = parts, {trait: some for trait, some in names.items() if some}
        return self._natural[1]

    def _has_fixed_rule(self) -> bool:
        """Return whether all parts in use give values from 0 to 1 by a fixed rule."""
        parts = self._bus.state.rewards.parts
        if parts is not self._fixed_rule[0]:
            kinds = [one.kind for one in parts if one.enabled]
            self._fixed_rule = parts, bool(kinds) and all(map(has_fixed_rule, kinds))
        return self._fixed_rule[1]

    # --- reporting ------------------------------------------------------------------------------

    def report(self) -> None:
        """Publish the figures; raise and end alerts."""
        if not self._values.count:
            return
        figures = (*self._hacking.figures(), self._keywords.figure())
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
            hacking = (
                _hacking(figure, self._by_nature().get(figure.trait, ())) if figure.alert else None
            )
            self._alert(f"hacking:{figure.trait}", hacking, figure.groups)
        for server in self._signal.servers:
            lacks, dead = self._signal.lacks_signal(server), self._signal.groups(server)
            self._alert(f"dead:{server}", self._signal.alert(server) if lacks else None, dead)
        self._alert("rewards:scale", self._values.trouble())
        show_outlier = bool(self._values.outliers) and self._calm < CALM_GROUPS
        self._alert(
            "rewards:outlier", self._outlier() if show_outlier else None, self._values.outlying
        )

    def _alert(self, key: str, params: AlertParams | None, groups: Sequence[str] = ()) -> None:
        """Raise the alert with the present figures; clear it for None."""
        if params is not None:
            show_alert(self._bus, key, params, groups=groups)
        else:
            clear_alert(self._bus, key)

    def _outlier(self) -> RewardOutlier:
        group, index, value, z = self._values.outliers[-1]
        return RewardOutlier(
            group=group,
            candidate=index + 1,
            reward=float(f"{value:.4g}"),
            deviations=round(abs(z), 1),
        )


def _without(parts: Sequence[Part], names: Sequence[str]) -> float:
    """Return the reward of the other parts alone."""
    return combine([part for part in parts if part.name not in names])


def _hacking(one: WatchFigure, parts: Sequence[str]) -> RewardHacking:
    """Return the alert about one trait, with the figures as they are shown."""
    assert one.r is not None
    return RewardHacking(
        trait=one.trait,
        r=round(one.r, 2),
        low=round(one.low, 2),
        high=round(one.high, 2),
        answers=one.n,
        groups=one.groups,
        parts=tuple(parts),
        word=one.word,
    )
