"""Groups scored again, compared with their earlier rewards."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.events import Part, TrialGroup, TrialSummary
from core.scoring.advantage import advantages, is_dead, spread
from core.scoring.agreement import only_top
from proxy.rewards.source import Abstention, GroupContext, Score

MAX_CHANGED = 3
"""Number of most-changed groups that a summary contains."""
CAUSES = 5
QUERY = 120
"""Maximum length of a query in a summary, in characters."""


@dataclass(frozen=True, slots=True)
class Case:
    """One group to score again."""

    context: GroupContext
    before: Mapping[int, float] = field(default_factory=dict)
    """Earlier rewards by candidate; empty for none. Those of a group rated by hand are its
    automatic ones, since other rewards change nothing else."""
    hand: Mapping[int, float] = field(default_factory=dict)
    """Rewards of its vote by candidate; empty unless a person rated it."""
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict)
    """Parts of the earlier automatic rewards, by candidate."""
    source: str = ""
    """`auto` or `human` once the rewards were sealed, else empty."""
    version: str = ""
    """Version of the rewards that scored it before."""
    note: str = ""
    """What differs from the original group; empty for nothing."""


@dataclass(frozen=True)
class Rescored:
    """Result of scoring one case again: scores, or an abstention."""

    case: Case
    after: tuple[Score, ...] = ()
    abstention: Abstention | None = None
    seconds: float = 0.0

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self.case.context.group_id

    @property
    def rewards(self) -> dict[int, float]:
        """The new rewards by candidate."""
        return {score.index: score.reward for score in self.after}

    @property
    def pair(self) -> tuple[list[float], list[float]]:
        """Rewards before and after, of the candidates that have both."""
        before, now = self.case.before, self.rewards
        both = [index for index in sorted(before) if index in now]
        return [before[index] for index in both], [now[index] for index in both]

    @property
    def compared(self) -> bool:
        """Whether some candidates have rewards before and after."""
        return not self.case.before.keys().isdisjoint(self.rewards)

    @property
    def winners(self) -> tuple[int | None, int | None]:
        """The single best candidate before and after; None for a tie."""
        return _winners(self.case.before, self.rewards)

    @property
    def flipped(self) -> bool:
        """Whether another candidate is the best."""
        before, after = self.winners
        return before is not None and after is not None and before != after

    @property
    def judged(self) -> bool:
        """Whether some candidates have a new reward and one of a person."""
        return not self.case.hand.keys().isdisjoint(self.rewards)

    @property
    def agrees(self) -> bool:
        """Whether the new rewards put the person's choice first; for a tie, no single one."""
        chosen, now = _winners(self.case.hand, self.rewards)
        return chosen == now

    @property
    def dead(self) -> tuple[bool, bool]:
        """Whether the group trains nothing, before and after."""
        before, after = self.pair
        return is_dead(before), is_dead(after)

    @property
    def change(self) -> float:
        """Mean absolute difference of the advantages, which determines the weight update."""
        before, after = self.pair
        if not before:
            return 0.0
        rows = zip(advantages(before, 0.0), advantages(after, 0.0), strict=True)
        return sum(abs(then - now) for then, now in rows) / len(before)


def _winners(
    first: Mapping[int, float], second: Mapping[int, float]
) -> tuple[int | None, int | None]:
    """Return the single best of the candidates that have both rewards, by each of them."""
    both = [index for index in first if index in second]
    return (
        only_top({index: first[index] for index in both}),
        only_top({index: second[index] for index in both}),
    )


def summary_of(results: Sequence[Rescored], version: str) -> TrialSummary:
    """Return the summary of many results."""
    compared = [result for result in results if result.compared]
    dead = [result.dead for result in compared]
    pairs = [result.pair for result in compared]
    by_hand = [result for result in results if result.judged]
    causes = Counter(result.abstention.cause for result in results if result.abstention)
    notes = Counter(result.case.note for result in results if result.case.note)
    changed = [result for result in compared if result.change > 1e-9]
    changed.sort(key=lambda result: result.change, reverse=True)
    return TrialSummary(
        groups=len(results),
        compared=len(compared),
        flips=sum(result.flipped for result in compared),
        died=sum(now and not then for then, now in dead),
        revived=sum(then and not now for then, now in dead),
        dead_before=sum(then for then, _ in dead),
        dead_after=sum(now for _, now in dead),
        by_hand=len(by_hand),
        by_hand_kept=sum(result.agrees for result in by_hand),
        mean_before=_mean([value for before, _ in pairs for value in before]),
        mean_after=_mean([value for _, after in pairs for value in after]),
        spread_before=_mean([spread(before) for before, _ in pairs]),
        spread_after=_mean([spread(after) for _, after in pairs]),
        gained=sum(
            bool(result.after) and not (result.case.before or result.case.hand)
            for result in results
        ),
        outside=sum(
            any(not -1e-9 <= score.reward <= 1 + 1e-9 for score in result.after)
            for result in results
        ),
        abstained=causes.total(),
        abstentions=tuple(causes.most_common(CAUSES)),
        seconds=sum(result.seconds for result in results),
        slowest=max((result.seconds for result in results), default=0.0),
        notes=tuple(notes.most_common(CAUSES)),
        version=version,
        most=tuple(_brief(result) for result in changed[:MAX_CHANGED]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _brief(result: Rescored) -> TrialGroup:
    (before, after), (winner, now) = result.pair, result.winners
    return TrialGroup(
        group_id=result.group_id,
        query=result.case.context.query[:QUERY],
        before=tuple(before),
        after=tuple(after),
        winner_before=winner,
        winner_after=now,
        change=result.change,
    )
