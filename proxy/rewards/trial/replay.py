"""Scores groups again and compares the result with their earlier rewards; it changes nothing else.

The newest groups of a journal, one group, or the lines of a file go through a reward source;
`summary_of` reports what would have been different.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.runtime import SYSTEM
from core.events import CandidateScore, Part, TrialGroup, TrialSummary
from core.scoring.advantage import advantages, is_dead, spread
from core.scoring.agreement import only_top
from proxy.rewards.source import (
    Abstention,
    GroupContext,
    RewardSource,
    ScoreSheet,
    SourceHealth,
    request_scores,
)

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


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of scoring one case again."""

    group_id: str
    query: str
    answers: tuple[str, ...]
    """Texts, in the order of `after`."""
    before: dict[int, float]
    hand: dict[int, float] = {}
    """See `Case`."""
    parts_before: dict[int, tuple[Part, ...]]
    source: str = ""
    version_before: str = ""
    after: tuple[CandidateScore, ...] = ()
    """Empty after an abstention."""
    abstained: str = ""
    part: str = ""
    """Name of the part that abstained."""
    traceback: str = ""
    file: str = ""
    line: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def rewards(self) -> dict[int, float]:
        """The new rewards by candidate."""
        return {one.index: one.reward for one in self.after}

    @property
    def compared(self) -> bool:
        """Whether some candidates have rewards before and after."""
        return bool(self._compared_indices())

    def _compared_indices(self) -> list[int]:
        now = self.rewards
        return [index for index in sorted(self.before) if index in now]

    @property
    def pair(self) -> tuple[list[float], list[float]]:
        """Rewards before and after, of the candidates that have both."""
        now, both = self.rewards, self._compared_indices()
        return [self.before[index] for index in both], [now[index] for index in both]

    @property
    def winners(self) -> tuple[int | None, int | None]:
        """The single best candidate before and after; None for a tie."""
        return _winners(self.before, self.rewards)

    @property
    def judged(self) -> bool:
        """Whether some candidates have a new reward and one of a person."""
        return not self.hand.keys().isdisjoint(self.rewards)

    @property
    def agrees(self) -> bool:
        """Whether the new rewards put the person's choice first; for a tie, no single one."""
        chosen, now = _winners(self.hand, self.rewards)
        return chosen == now

    @property
    def flipped(self) -> bool:
        """Whether another candidate is the best."""
        before, after = self.winners
        return before is not None and after is not None and before != after

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
        return sum(abs(one - other) for one, other in rows) / len(before)


def _winners(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[int | None, int | None]:
    """Return the single best of the candidates that have both rewards, by each of them."""
    both = [index for index in one if index in other]
    return (
        only_top({index: one[index] for index in both}),
        only_top({index: other[index] for index in both}),
    )


async def rescore(
    source: RewardSource,
    case: Case,
    limit: float,
    clock: Callable[[], float] = SYSTEM.clock.monotonic,
) -> TrialResult:
    """Score one case; the result has scores or an abstention, also if the source fails."""
    started_at = clock()
    scored = await request_scores(source, case.context, limit)
    return result_of(case, scored, clock() - started_at)


def result_of(case: Case, scored: ScoreSheet | Abstention, seconds: float) -> TrialResult:
    """Return the result of a case from its new scores or abstention."""
    context = case.context
    result = TrialResult(
        group_id=context.group_id,
        query=context.query,
        answers=tuple(str(one.message.get("content") or "") for one in context.answers),
        before=dict(case.before),
        hand=dict(case.hand),
        parts_before=dict(case.parts),
        source=case.source,
        version_before=case.version,
        seconds=seconds,
        note=case.note,
    )
    if isinstance(scored, ScoreSheet):
        return msgspec.structs.replace(result, after=scored.scores)
    return msgspec.structs.replace(
        result,
        abstained=scored.cause,
        part=scored.part,
        traceback=scored.traceback,
        file=scored.file,
        line=scored.line,
    )


async def rescore_all(
    source: RewardSource,
    cases: Iterable[Case],
    limit: float,
    *,
    concurrency: int = 1,
    on_result: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = SYSTEM.clock.monotonic,
) -> list[TrialResult]:
    """Score all cases and return their results in the same order.

    The event loop runs between two groups, so that a proxy keeps answering its users.

    Args:
        source: A started source that nothing else uses.
        cases: The cases; taken one by one.
        limit: Time limit of one group in seconds.
        concurrency: Number of groups scored at once; above 1 for a source that waits.
        on_result: Called after each group.
        clock: Returns monotonic seconds.

    Raises:
        AjetError: the iterator of cases failed.
    """
    results: dict[int, TrialResult] = {}
    numbered = enumerate(cases)

    async def rescore_next(rest: Iterator[tuple[int, Case]]) -> None:
        for place, case in rest:
            results[place] = await rescore(source, case, limit, clock)
            on_result()
            await asyncio.sleep(0)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, concurrency)):
                group.create_task(rescore_next(numbered))
    except* AjetError as errors:  # from the iterator of cases
        raise errors.exceptions[0] from None
    return [results[place] for place in sorted(results)]


def summary_of(results: Sequence[TrialResult], version: str) -> TrialSummary:
    """Return the summary of many results."""
    compared = [one for one in results if one.compared]
    dead = [one.dead for one in compared]
    pairs = [one.pair for one in compared]
    by_hand = [one for one in results if one.judged]
    causes = Counter(one.abstained for one in results if one.abstained)
    notes = Counter(one.note for one in results if one.note)
    spent = [one.seconds for one in results]
    changed = sorted(
        (one for one in compared if one.change > 1e-9), key=lambda one: one.change, reverse=True
    )
    return TrialSummary(
        groups=len(results),
        compared=len(compared),
        flips=sum(one.flipped for one in compared),
        died=sum(now and not then for then, now in dead),
        revived=sum(then and not now for then, now in dead),
        dead_before=sum(then for then, _ in dead),
        dead_after=sum(now for _, now in dead),
        by_hand=len(by_hand),
        by_hand_kept=sum(one.agrees for one in by_hand),
        mean_before=_mean([value for before, _ in pairs for value in before]),
        mean_after=_mean([value for _, after in pairs for value in after]),
        spread_before=_mean([spread(before) for before, _ in pairs]),
        spread_after=_mean([spread(after) for _, after in pairs]),
        gained=sum(bool(one.after) and not (one.before or one.hand) for one in results),
        outside=sum(any(not _within(value.reward) for value in one.after) for one in results),
        abstained=causes.total(),
        abstentions=tuple(causes.most_common(CAUSES)),
        seconds=sum(spent),
        slowest=max(spent, default=0.0),
        notes=tuple(notes.most_common(CAUSES)),
        version=version,
        most=tuple(_brief(one) for one in changed[:MAX_CHANGED]),
    )


def _within(reward: float) -> bool:
    return -1e-9 <= reward <= 1 + 1e-9


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _brief(one: TrialResult) -> TrialGroup:
    (before, after), (winner, now) = one.pair, one.winners
    return TrialGroup(
        group_id=one.group_id,
        query=one.query[:QUERY],
        before=tuple(before),
        after=tuple(after),
        winner_before=winner,
        winner_after=now,
        change=one.change,
    )


async def wait_ready(source: RewardSource, seconds: float) -> None:
    """Wait until a started source scores.

    Raises:
        AjetError: it does not load, or not in time; with file and line.
    """
    changed = asyncio.Event()

    def on_health(health: SourceHealth) -> None:
        changed.set()

    remove = source.add_listener(on_health)
    try:
        async with asyncio.timeout(seconds):
            while not source.version:
                error = source.health().error
                if error is not None and (error.traceback or error.line):
                    raise _load_error(error)
                changed.clear()
                await changed.wait()
    except TimeoutError:
        error = source.health().error
        raise _load_error(error or Abstention(source.name, "no version is active")) from None
    finally:
        remove()
    health = source.health()
    if not health.ok and health.error is not None:  # do not try an older version instead
        raise _load_error(health.error)


def _load_error(error: Abstention) -> AjetError:
    where = f"{error.file}:{error.line}" if error.file and error.line else error.file
    trace = f"\n{error.traceback.rstrip()}" if error.traceback else ""
    return AjetError(f"the rewards did not load: {error.cause}{trace}", where)
