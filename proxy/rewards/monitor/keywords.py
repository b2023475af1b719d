"""Running correlations of the reward with single words of the answers.

A reward that pays a word raises its share in the answers. Each word that some answers of a group
contain and others do not counts with the correlation of its presence and the reward within the
group. Words of the query and of the reference do not count: a good answer contains them.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence

import msgspec

from core.events import WatchFigure
from core.scoring.advantage import is_dead
from proxy.rewards.monitor.hacking import LOW, MAX_GROUPS, WINDOW, centred, interval, shared

TRAIT = "keyword"

MAX_LENGTH = 30
"""Maximum length of a word that is named."""
MIN_GROUPS = 10
"""Groups in which the presence of a word varies that are needed for an alert."""
HIGH = 0.6
"""The r that raises an alert if the whole interval lies beyond `MIN_BOUND`."""
MIN_BOUND = 0.3
SMALL = 6
"""Answers of a group up to which the sums of all subsets are cheaper than those needed."""
Z = 4.0
"""Deviations of the interval: one of hundreds of words correlates with the reward by chance."""


class _WordRow(msgspec.Struct, frozen=True, gc=False):
    """The words of one group."""

    group_id: str
    n: int
    masks: dict[str, int]
    """For each word the answers with it, as bits."""
    correlations: dict[int, float]
    """For each such mask the correlation of reward and presence."""


_TakenGroup = tuple[
    str, Sequence[float], Sequence[Collection[str]], Collection[str], Sequence[float] | None
]
"""The arguments of `KeywordMonitor.take`."""


class KeywordMonitor:
    """Running correlations over sealed groups, in bounded memory.

    Rough sums over two generations of groups, of which the older one is dropped when the newer one
    is full, name the few words whose figures are then computed from the groups of the window.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._half = window // 2
        self._pending: deque[_TakenGroup] = deque(maxlen=window)
        self._rows: deque[_WordRow] = deque(maxlen=window)
        self._newer: dict[str, complex] = {}
        """For each word the number of groups, and as the imaginary part the sum of the r."""
        self._older: dict[str, complex] = {}
        self._since = 0
        self._word = ""
        """The word of the alert."""
        self._strongest: tuple[str, ...] = ()

    def take(
        self,
        group_id: str,
        rewards: Sequence[float],
        words: Sequence[Collection[str]],
        known: Collection[str] = (),
        adjusted: Sequence[float] | None = None,
    ) -> None:
        """Take a group, unless its rewards are all equal; `count` counts it.

        Args:
            group_id: Id of the group.
            rewards: One for each answer.
            words: The words of each answer.
            known: Words that do not count: those of the query and of the reference.
            adjusted: The rewards without the parts that reward words by their nature. A word has
                the weaker of both correlations.
        """
        if not is_dead(rewards):
            self._pending.append((group_id, rewards, words, known, adjusted))

    def count(self) -> None:
        """Count the groups taken so far; it may run in another thread than `take`."""
        while self._pending:
            self._count(*self._pending.popleft())

    def _count(
        self,
        group_id: str,
        rewards: Sequence[float],
        words: Sequence[Collection[str]],
        known: Collection[str],
        adjusted: Sequence[float] | None,
    ) -> None:
        reward, size = centred(rewards)
        others = None if adjusted is None else centred(adjusted)
        if others is not None and not others[1]:
            return
        n = len(rewards)
        masks: dict[str, int] = {}
        everywhere = frozenset(words[0]).intersection(*words[1:]) if words else frozenset()
        for at, some in enumerate(words):
            bit = 1 << at
            for word in some:
                if word in masks:
                    masks[word] |= bit
                else:
                    masks[word] = bit
        for word in everywhere.union(known).intersection(masks):
            del masks[word]  # a word of all answers does not vary
        correlations = _presences(set(masks.values()), reward, size)
        if others is not None:
            weaker = _presences(correlations, *others)
            correlations = {mask: shared(r, weaker[mask]) for mask, r in correlations.items()}
        self._rows.append(_WordRow(group_id, n, masks, correlations))
        if self._since == self._half:
            self._older, self._newer, self._since = self._newer, {}, 0
        self._since += 1
        totals, values = self._newer, {mask: complex(1, r) for mask, r in correlations.items()}
        for word, mask in masks.items():
            if word in totals:
                totals[word] += values[mask]
            else:
                totals[word] = values[mask]

    def figure(self) -> WatchFigure:
        """Return the figures of the word that the rewards follow most; raise and end the alert.

        Without an alert there are no figures: the strongest of many correlations is too high.
        """
        self.count()
        if self._word and self._total(self._word)[2] < LOW:
            self._word = ""
        if not self._word:
            bound, word = max(
                [(self._bound(one), one) for one in self._candidates()], default=(0.0, "")
            )
            if bound < MIN_BOUND:
                return WatchFigure(trait=TRAIT)
            self._word, self._strongest = word, self._strongest_groups(word)
        n, groups, r = self._total(self._word)
        low, high = interval(r, n, groups)
        return WatchFigure(
            trait=TRAIT,
            word=self._word,
            r=r,
            low=low,
            high=high,
            n=n,
            groups=self._strongest,
            alert=True,
        )

    def _bound(self, word: str) -> float:
        """Return the lower bound of the word's correlation; 0 if there is too little of it."""
        n, groups, r = self._total(word)
        return interval(r, n, groups, Z)[0] if groups >= MIN_GROUPS and r >= HIGH else 0.0

    def _total(self, word: str) -> tuple[int, int, float]:
        """Return the answers, the groups and the correlation in the groups where it varies."""
        n, groups, products = 0, 0, 0.0
        for row in self._rows:
            r = row.correlations.get(row.masks.get(word, 0))
            if r is not None:
                n, groups, products = n + row.n, groups + 1, products + row.n * r
        return n, groups, max(-1.0, min(1.0, products / n)) if n else 0.0

    def _strongest_groups(self, word: str) -> tuple[str, ...]:
        """Return the groups with the strongest correlation; of equal ones the newest."""
        strengths = [
            (row.correlations.get(row.masks.get(word, 0), 0.0), row.group_id)
            for row in reversed(self._rows)
        ]
        strengths.sort(key=lambda one: one[0], reverse=True)
        return tuple([name for r, name in strengths[:MAX_GROUPS] if r > 0])

    def _candidates(self) -> list[str]:
        """Return the words with a high rough correlation in enough groups, in their order."""
        words = []
        for word in self._newer.keys() | self._older.keys():
            total = self._newer.get(word, 0j) + self._older.get(word, 0j)
            enough = total.real >= MIN_GROUPS and len(word) <= MAX_LENGTH
            if enough and total.imag >= HIGH * total.real:
                words.append(word)
        return sorted(words)


def _presences(masks: Collection[int], reward: Sequence[float], size: float) -> dict[int, float]:
    """Return the correlation of a centred reward with the presence in some answers, by mask.

    Args:
        masks: Answers as bits: some, but not all.
        reward: The centred rewards.
        size: Sum of their squares.
    """
    n = len(reward)
    norms = [0.0, *[math.sqrt(size * k * (n - k) / n) for k in range(1, n)]]
    if n <= SMALL:  # the sums of all subsets, each from a smaller one
        sums = [0.0]
        for one in reward:
            sums += [total + one for total in sums]
        return {mask: sums[mask] / norms[mask.bit_count()] for mask in masks}
    return {
        mask: sum([one for at, one in enumerate(reward) if mask >> at & 1])
        / norms[mask.bit_count()]
        for mask in masks
    }
