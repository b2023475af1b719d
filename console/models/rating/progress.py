"""Progress of one rating session: number of votes, pace."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NEWEST = 20
"""Votes that the pace is computed from."""
PAUSE = 60.0
"""Seconds that count at most between two votes: a longer gap is a break."""


@dataclass(frozen=True, slots=True)
class RatingFigures:
    """The figures of a session.

    Attributes:
        rated: Votes of this console since its start, without undone ones and skips.
        per_minute: Pace of the newest votes; None before the second one.
        skipped: Groups that this console skipped.
    """

    rated: int
    per_minute: float | None = None
    skipped: int = 0


def pace_of(times: Sequence[float]) -> float | None:
    """Return the votes per minute of the newest votes; None before the second one.

    Args:
        times: Times of the votes in Unix seconds, in order.
    """
    gaps = [min(later - at, PAUSE) for at, later in pairwise(times[-NEWEST:])]
    return 60.0 * len(gaps) / sum(gaps) if sum(gaps) > 0 else None


class RatingProgress:
    """Counts the votes of a session, and its skips apart. The times are unix seconds."""

    def __init__(self) -> None:
        self._votes: dict[str, float] = {}
        self._skipped: set[str] = set()

    def voted(self, group_id: str, at: float) -> None:
        """Count a vote; one that replaces another counts once."""
        self.undone(group_id)
        self._votes[group_id] = at

    def skipped(self, group_id: str) -> None:
        """Count a skip, which is no vote."""
        self.undone(group_id)
        self._skipped.add(group_id)

    def undone(self, group_id: str) -> None:
        """Remove a vote or a skip that was undone or refused."""
        self._votes.pop(group_id, None)
        self._skipped.discard(group_id)

    def figures(self) -> RatingFigures:
        """Return the figures now."""
        pace = pace_of(sorted(self._votes.values()))
        return RatingFigures(len(self._votes), pace, len(self._skipped))

    def by_minute(self, now: float, minutes: int) -> tuple[int, ...]:
        """Return the votes in each of the last `minutes`, oldest first."""
        counts = [0] * minutes
        for at in self._votes.values():
            if 0 <= (ago := int((now - at) // 60)) < minutes:
                counts[minutes - 1 - ago] += 1
        return tuple(counts)


def progress_words(now: RatingFigures) -> str:
    """Return `7 rated, 4.2/min`; empty before the first vote of a session.

    Skips are named apart: `7 rated, 2 skipped, 4.2/min`.
    """
    if not (now.rated or now.skipped):
        return ""
    words = f"{now.rated} rated"
    if now.skipped:
        words += f", {now.skipped} skipped"
    return words if now.per_minute is None else f"{words}, {now.per_minute:.1f}/min"
