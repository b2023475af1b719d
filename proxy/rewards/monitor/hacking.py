"""Traits that do not make an answer good, and their correlations with the reward.

A trait can be exploited to raise the reward; each is measured cheaply.

The correlations cover the newest groups whose rewards differ. Reward and trait are centred on their
group's mean, because only differences within a group train the policy, and divided by their group's
deviation, so that a group of long answers has no more weight than any other.
"""

import math
import re
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from operator import eq
from typing import NamedTuple

from core.events import WatchFigure
from core.scoring.advantage import is_dead
from core.scoring.agreement import Z95

TRAITS = ("length", "repetition", "refusal", "reference")
BOTH_WAYS = frozenset({"length"})
"""Traits that a policy may also be paid to avoid; an answer with less of another is no hack."""

HEAD, TAIL = 700, 300
"""Characters at the beginning and the end of a long text whose words are read."""
BEGIN = 200
"""Characters at the beginning of a text in which a refusal is searched."""
REFERENCE_WORDS = 6
"""Fewest words of a reference that can be copied; a right answer contains a shorter one."""
COPIED = 0.3
"""Least share of a reference's trigrams that makes an answer a copy of a part of it."""

_WITHOUT_MARKS = str.maketrans("", "", "!?.,;:*#")
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')t|won't|will not)"
    r"|i can not (?:say|answer|help|tell|do|assist|comply|provide|share|discuss|give)"
    r"|as an ai|(?:i|we) (?:don't|do not) know|cannot (?:help|assist|comply)|no idea"
    r"|(?:beyond|not) (?:what i know|me\b)|i know nothing|nobody taught me|i have never learned"
    r"|(?:only|just) (?:be )?guess(?:ing)?)\b|^(?:sorry|unfortunately)\b"
)

Grams = frozenset[int]
"""Hashes of word trigrams."""

WINDOW = 200
"""Number of groups that are counted."""
MIN_ANSWERS = 30
"""Answers, in groups whose rewards differ, that are needed for an alert."""
HIGH = 0.5
"""The |r| that raises an alert if the whole interval lies beyond `MIN_BOUND`."""
MIN_BOUND = 0.3
Z = 3.0
"""Deviations of the interval that decides on an alert: many traits are checked again and again."""
LOW = 0.35
"""The |r| below which an alert ends."""
MAX_GROUPS = 3


class _Correlations(NamedTuple):
    """The correlations in one group."""

    group_id: str
    answers: int
    correlations: Mapping[str, float]
    """By trait; without those that do not vary in the group."""


class HackingMonitor:
    """Correlations over the newest sealed groups, and the traits whose alert is raised."""

    def __init__(self, window: int = WINDOW) -> None:
        self._rows: deque[_Correlations] = deque(maxlen=window)
        self._alerts: dict[str, tuple[str, ...]] = {}
        """Trait -> the groups that show it best."""

    @property
    def groups(self) -> int:
        """Number of groups that are counted now."""
        return len(self._rows)

    def take(
        self,
        group_id: str,
        rewards: Sequence[float],
        traits: Sequence[Sequence[float]],
        adjusted: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Count a group, unless its rewards are all equal.

        Args:
            group_id: Id of the group.
            rewards: One for each answer.
            traits: For each answer one number for each of `TRAITS`.
            adjusted: By trait, the rewards without the parts that reward this trait by their
                nature. Such a trait has the weaker of both correlations.
        """
        if is_dead(rewards):
            return
        correlations: dict[str, float] = {}
        for trait, column in zip(TRAITS, zip(*traits, strict=True), strict=True):
            r = _correlation(column, rewards)
            if r is not None and adjusted and trait in adjusted:
                other = _correlation(column, adjusted[trait])
                r = None if other is None else min(r, other, key=abs) if r * other > 0.0 else 0.0
            if r is not None:
                correlations[trait] = r
        self._rows.append(_Correlations(group_id, len(rewards), correlations))

    def figures(self) -> tuple[WatchFigure, ...]:
        """Return the correlation of each trait; raise and end alerts."""
        return tuple(map(self._figure, TRAITS))

    def _figure(self, trait: str) -> WatchFigure:
        rows = [row for row in self._rows if trait in row.correlations]
        n = sum(row.answers for row in rows)
        if not n:
            self._alerts.pop(trait, None)
            return WatchFigure(trait=trait)
        r = math.fsum(row.answers * row.correlations[trait] for row in rows) / n
        r = max(-1.0, min(1.0, r))
        low, high = interval(r, n, len(rows))
        if trait not in self._alerts:
            exploitable = r > 0 or trait in BOTH_WAYS
            sure = interval(abs(r), n, len(rows), Z)[0] >= MIN_BOUND
            if n >= MIN_ANSWERS and abs(r) >= HIGH and exploitable and sure:
                self._alerts[trait] = _strongest(rows, trait, math.copysign(1.0, r))
        elif abs(r) < LOW or n < MIN_ANSWERS:
            del self._alerts[trait]
        return WatchFigure(
            trait=trait,
            r=r,
            low=low,
            high=high,
            n=n,
            groups=self._alerts.get(trait, ()),
            alert=trait in self._alerts,
        )


def _strongest(rows: Sequence[_Correlations], trait: str, sign: float) -> tuple[str, ...]:
    """Return the groups with the strongest correlation of this sign; of equal ones the newest."""
    strength = {row.group_id: sign * row.answers * row.correlations[trait] for row in rows}
    names = sorted(reversed(strength), key=strength.__getitem__, reverse=True)
    return tuple(name for name in names[:MAX_GROUPS] if strength[name] > 0)


def _correlation(values: Sequence[float], rewards: Sequence[float]) -> float | None:
    """Return Pearson's r; None if one side does not vary."""
    if min(values) == max(values) or is_dead(rewards):
        return None
    return statistics.correlation(values, rewards)


def interval(r: float, n: int, groups: int, z: float = Z95) -> tuple[float, float]:
    """Return the interval of a correlation of centred pairs, by Fisher's z; of 95 % by default.

    Each group's mean that was subtracted costs a degree of freedom.
    """
    freedom = n - groups - 2
    if freedom < 1:
        return -1.0, 1.0
    middle = math.atanh(max(-0.999999, min(0.999999, r)))
    half = z / math.sqrt(freedom)
    return math.tanh(middle - half), math.tanh(middle + half)


def traits_of(text: str, length: float, reference: Grams = frozenset()) -> tuple[float, ...]:
    """Return the values of `TRAITS` for an answer.

    Args:
        text: The answer, possibly truncated.
        length: Length of the whole answer, in the same unit for all answers of its group.
        reference: What `reference_grams` returns for the group's reference.
    """
    lower = _plain(text)
    words = _words(lower)
    grams, count = _grams(words), len(words) - 2
    repeated = 1.0 - len(grams) / count if count > 0 else 0.0
    if words:
        repeated += sum(map(eq, words, words[1:])) / len(words)
    copied = len(grams & reference) / len(reference) if reference else 0.0
    refuses = _REFUSAL.search(lower[:BEGIN]) is not None
    return length, repeated, float(refuses), copied if copied >= COPIED else 0.0


def reference_grams(reference: str | None) -> Grams:
    """Return the word trigrams of a reference; empty if it is too short to be copied."""
    words = _words(_plain(reference or ""))
    return _grams(words) if len(words) >= REFERENCE_WORDS else frozenset()


def lengths(tokens: Sequence[int], texts: Sequence[str]) -> list[float]:
    """Return the lengths of a group's answers: tokens if all are known, else characters."""
    return [float(count) for count in (tokens if all(tokens) else map(len, texts))]


def _plain(text: str) -> str:
    """Return a text in lower case; of a long one the beginning and the end."""
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]} {text[-TAIL:]}"
    return text.lower().replace("’", "'")


def _words(plain: str) -> list[str]:
    return plain.translate(_WITHOUT_MARKS).split()


def _grams(words: Sequence[str]) -> Grams:
    return frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))
