"""Figures of an export for its dataset card, counted while the groups pass."""

import math
from collections import Counter

import msgspec

from console.export.records import ExportedGroup
from core.scoring.agreement import only_top, wilson


class RewardDistribution(msgspec.Struct):
    """Distribution of the rewards."""

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    squares: float = 0.0
    tenths: Counter[int] = msgspec.field(default_factory=Counter)
    """Number of rewards in each tenth of 0 to 1; -1 and 10 are those outside."""

    def add(self, value: float) -> None:
        """Count one reward."""
        self.count += 1
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.total += value
        self.squares += value * value
        inside = 0.0 <= value <= 1.0
        self.tenths[min(int(value * 10), 9) if inside else (-1 if value < 0 else 10)] += 1

    @property
    def mean(self) -> float:
        """Mean; 0 without rewards."""
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Population standard deviation; 0 without rewards."""
        if not self.count:
            return 0.0
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2))


class GroupFigures(msgspec.Struct):
    """Figures of the exported groups."""

    groups: int = 0
    answers: int = 0
    rated: int = 0
    corrected: int = 0
    rewards: RewardDistribution = msgspec.field(default_factory=RewardDistribution)
    compared: int = 0
    """Rated groups in which vote and automatic rewards each have a single best answer."""
    agreed: int = 0
    """Those of them with the same one."""
    expected: float = 0.0
    """Expected number of those by chance."""
    blind: int = 0
    """Those compared whose rater saw no rewards."""
    blind_agreed: int = 0
    servers: Counter[str] = msgspec.field(default_factory=Counter)
    weights: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of answers by version of the weights; the first `WEIGHTS_CAP` versions."""
    versions: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of groups by version of the rewards."""
    first: float = math.inf
    last: float = 0.0
    """Unix seconds of the earliest and latest judgement."""

    def add(self, record: ExportedGroup) -> None:
        """Count one group."""
        self.groups += 1
        self.answers += len(record.candidates)
        self.rated += record.rated
        self.corrected += record.correction is not None
        self.first, self.last = min(self.first, record.time), max(self.last, record.time)
        self.servers[record.group.server] += 1
        _count(self.versions, record.group.version)
        for candidate in record.candidates:
            _count(self.weights, candidate.weights)
            if candidate.reward is not None:
                self.rewards.add(candidate.reward)
        if record.rated:
            self._compare(record)

    def _compare(self, record: ExportedGroup) -> None:
        both = [candidate for candidate in record.candidates if candidate.human is not None]
        human = only_top(
            {candidate.index: candidate.human for candidate in both if candidate.human is not None}
        )
        auto = only_top(
            {
                candidate.index: candidate.automatic
                for candidate in both
                if candidate.automatic is not None
            }
        )
        if human is None or auto is None:
            return
        self.compared += 1
        self.agreed += human == auto
        self.expected += 1 / len(both)
        if record.vote is not None and record.vote.blind:
            self.blind += 1
            self.blind_agreed += human == auto


WEIGHTS_CAP = 1_000
"""Maximum number of versions that are counted one by one."""


def _count(counter: Counter[str], name: str) -> None:
    if name in counter or len(counter) < WEIGHTS_CAP:
        counter[name] += 1


def share_text(hits: int, count: int) -> str:
    """Return a share with its 95 % interval: `12 of 20 (60 %, 95 % interval 39 to 78 %)`."""
    if not count:
        return "none"
    low, high = wilson(hits, count)
    return f"{hits} of {count} ({hits / count:.0%}, 95 % interval {low:.0%} to {high:.0%})"
