"""Figures about the rewards of the newest groups, computed from the state.

A `Digest` summarizes one group and is rebuilt only when the group changes; `figures` combines the
digests of the last groups.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from console.text.causes import cause_words
from console.ui.curve import Point
from core.events import Part
from core.events.causes import NotScored
from core.scoring.advantage import is_dead
from core.scoring.agreement import top
from core.state import Candidate, Group, State
from core.state.server import hand_score

WINDOWS = (100, 500, 20)
"""Numbers of groups that the figures can cover; the first is the default."""


def reward_of(
    parts: Iterable[Part], weights: Mapping[str, float] | None = None, without: str = ""
) -> float:
    """Return the product of the gates times the weighted sum of the other parts.

    Args:
        weights: Weights in place of those the parts had, by name.
        without: Name of a part that is left out: a gate that is open, a weight of 0.
    """
    overrides = weights or {}
    gates, total = 1.0, 0.0
    for part in parts:
        if part.name == without:
            continue
        if part.gate:
            gates *= part.value
        else:
            total += overrides.get(part.name, part.weight) * part.value
    return gates * total


# --- one group -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartDigest:
    """The values of one part in one group."""

    values: tuple[float, ...]
    weight: float
    gate: bool
    decided: bool
    """Whether without it another answer would have won, or several would have tied."""
    indices: tuple[int, ...] = ()
    """Candidate of each value."""
    ranks: tuple[int, ...] = ()
    """Rank of each value's answer by its reward, from 1; empty where the rewards are equal."""

    @property
    def mean(self) -> float:
        """Mean of its values."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class Digest:
    """The rewards of one group."""

    group_id: str
    server: str
    step: int | None
    engine_run: int
    version: str
    scored: bool
    distinct: bool
    """Its automatic rewards differ."""
    by_hand: bool
    hand: float | None
    """Human reward of the automatic winner; None without a rating or without such a winner."""
    settled: bool
    """It was sealed, or has ended without that."""
    sent: bool
    """It was sealed and neither aborted nor failed."""
    dead: str
    """Why it has no signal though it was sealed; empty when it has one."""
    lost: str
    """How it ended without being sent, aborted or failed; empty when it was sent."""
    abstained: str
    rewards: tuple[float, ...]
    """Automatic rewards, also where human ones are sent: votes have another scale."""
    tokens: tuple[tuple[int, float], ...]
    """Length in tokens and reward of each answer with a known length."""
    characters: tuple[tuple[int, float], ...]
    """The same in characters, for answers that the state holds in full."""
    parts: Mapping[str, PartDigest]


def digest(group: Group) -> Digest:
    """Return the digest of `group` by the state now."""
    parts_by_index = {
        candidate.index: candidate.parts for candidate in group.candidates if candidate.parts
    }
    automatic = {
        candidate.index: candidate.auto_reward for candidate in group.candidates if candidate.parts
    }
    distinct = not is_dead([value for value in automatic.values() if value is not None])
    by_hand = group.source == "human"
    rewards = [_automatic(candidate, by_hand) for candidate in group.candidates]
    paired = [
        (candidate, reward)
        for candidate, reward in zip(group.candidates, rewards, strict=False)
        if reward is not None
    ]
    over = group.phase in ("ABORTED", "FAILED") or group.discarded
    sent = group.sealed_at is not None and not over
    return Digest(
        group_id=group.group_id,
        server=group.server,
        step=group.step,
        engine_run=group.engine_run,
        version=group.version,
        scored=bool(parts_by_index),
        distinct=distinct,
        by_hand=by_hand,
        hand=hand_score(group) if by_hand else None,
        settled=group.sealed_at is not None or over,
        sent=sent,
        dead=group.dead if sent else "",
        lost=_lost(group) if over else "",
        abstained=group.abstained,
        rewards=tuple(reward for _, reward in paired),
        tokens=tuple(
            (candidate.tokens, reward) for candidate, reward in paired if candidate.tokens
        ),
        characters=tuple(
            (len(candidate.text), reward) for candidate, reward in paired if not candidate.cut
        ),
        parts=_parts(parts_by_index, distinct, _ranks(group.candidates, rewards)),
    )


def _automatic(candidate: Candidate, by_hand: bool) -> float | None:
    """Return the automatic reward of a candidate, else the reward that was sent."""
    return (
        candidate.reward if candidate.auto_reward is None and not by_hand else candidate.auto_reward
    )


def _lost(group: Group) -> str:
    if group.cause_kind == NotScored.kind:
        return ""  # it is counted as not scored
    if group.discarded:
        return group.lost
    cause = f": {cause_words(group)}" if group.cause else ""
    return f"{group.phase.lower()}{cause}"


def _ranks(candidates: Sequence[Candidate], rewards: Sequence[float | None]) -> dict[int, int]:
    """Return the rank by reward of each candidate that has one; empty where they are equal."""
    known = [
        (candidate.index, reward)
        for candidate, reward in zip(candidates, rewards, strict=False)
        if reward is not None
    ]
    if is_dead([reward for _, reward in known]):
        return {}
    known.sort(key=lambda alert: (-alert[1], alert[0]))
    return {index: place for place, (index, _) in enumerate(known, 1)}


def _parts(
    parts_by_index: Mapping[int, tuple[Part, ...]], distinct: bool, ranks: Mapping[int, int]
) -> dict[str, PartDigest]:
    values: dict[str, list[float]] = {}
    indices: dict[str, list[int]] = {}
    by_name: dict[str, Part] = {}
    for index, parts in parts_by_index.items():
        for part in parts:
            values.setdefault(part.name, []).append(part.value)
            indices.setdefault(part.name, []).append(index)
            by_name[part.name] = part
    whole = top({index: reward_of(parts) for index, parts in parts_by_index.items()})
    digests = {}
    for name, part in by_name.items():
        counts = distinct and (part.gate or part.weight != 0)
        rest = (
            {index: reward_of(p, without=name) for index, p in parts_by_index.items()}
            if counts
            else {}
        )
        decided = counts and top(rest) != whole
        placed = [ranks[index] for index in indices[name] if index in ranks]
        digests[name] = PartDigest(
            tuple(values[name]),
            part.weight,
            part.gate,
            decided,
            tuple(indices[name]),
            tuple(placed) if len(placed) == len(values[name]) else (),
        )
    return digests


class Digests:
    """The digests of the groups in state; an unchanged one is not rebuilt."""

    def __init__(self) -> None:
        self._cached: dict[str, tuple[object, Digest]] = {}

    def last(self, state: State, most: int) -> list[Digest]:
        """Return the newest `most` trained groups that were scored or have ended; oldest first."""
        cached: dict[str, tuple[object, Digest]] = {}
        for group in reversed(state.groups.values()):
            if len(cached) == most:
                break
            if group.episode_type != "train" or (group.scored_at is None and group.open):
                continue
            rated = group.rating and group.rating.at
            seen = (group.phase, group.scored_at, rated, group.source, group.brief)
            old = self._cached.get(group.group_id)
            same = old is not None and old[0] == seen
            cached[group.group_id] = old if old is not None and same else (seen, digest(group))
        self._cached = cached
        return [entry for _, entry in reversed(cached.values())]


# --- many groups -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution; quartiles by linear interpolation, population deviation."""

    count: int
    mean: float
    std: float
    low: float
    first: float
    median: float
    third: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    """Return the distribution of `values`, at least one."""
    ordered = sorted(values)
    first, median, third = (
        statistics.quantiles(ordered, method="inclusive") if len(ordered) > 1 else ordered * 3
    )
    mean = math.fsum(ordered) / len(ordered)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / len(ordered))
    return Spread(len(ordered), mean, std, ordered[0], first, median, third, ordered[-1])


@dataclass(frozen=True, slots=True)
class PartFigures:
    """One part over the last groups."""

    name: str
    kind: str
    """gate, weighted or noted (weight 0: shown, not counted)."""
    weight: float
    """In the newest group that has it."""
    weights: tuple[float, float]
    """Least and greatest over the groups."""
    groups: int
    spread: Spread
    closed: int
    """Answers whose reward it reduced as a gate: values below 1."""
    decided: int
    decidable: int
    """Groups with a decision that have this part."""
    trace: tuple[float, ...]
    """Its mean in each group, oldest first."""


@dataclass(frozen=True, slots=True)
class RewardFigures:
    """The rewards over the last groups."""

    groups: int
    scored: int
    by_hand: int
    hand: float | None
    """Mean human reward of the automatic winner of human-rated groups; None without one."""
    present: int
    """Groups scored by the active version."""
    reward: Spread | None
    settled: int
    """Groups that were sealed, or have ended without that."""
    sent: int
    """Groups sealed and neither aborted nor failed; `dead` is a part of these."""
    dead: int
    causes: tuple[tuple[str, int], ...]
    """Why they have no signal, most frequent first."""
    lost: int
    """Groups aborted or failed, except those that were not scored."""
    losses: tuple[tuple[str, int], ...]
    """How they ended, most frequent first."""
    abstained: int
    abstentions: tuple[tuple[str, int], ...]
    correlation: float | None
    """Correlation of reward and length, each minus its group's mean; None without a value."""
    paired: int
    """Number of answers."""
    unit: str
    """Unit of the length: tokens or characters."""
    parts: tuple[PartFigures, ...]


def figures(digests: Sequence[Digest], version: str = "") -> RewardFigures:
    """Return the figures of the digests of the last groups.

    Args:
        digests: Oldest first.
        version: Version of the active rewards.
    """
    scored = [summary for summary in digests if summary.scored]
    rewards = [reward for summary in digests for reward in summary.rewards]
    scores = [summary.hand for summary in digests if summary.hand is not None]
    settled = [summary for summary in digests if summary.settled]
    dead = Counter(summary.dead for summary in settled if summary.dead)
    lost = Counter(summary.lost for summary in settled if summary.lost)
    abstained = Counter(summary.abstained for summary in digests if summary.abstained)
    by_tokens = any(summary.tokens for summary in digests)
    pairs = [summary.tokens if by_tokens else summary.characters for summary in digests]
    correlation, paired = correlated(pairs)
    return RewardFigures(
        groups=len(digests),
        scored=len(scored),
        by_hand=sum(summary.by_hand for summary in digests),
        hand=statistics.fmean(scores) if scores else None,
        present=sum(summary.version == version for summary in scored),
        reward=spread_of(rewards) if rewards else None,
        settled=len(settled),
        sent=sum(summary.sent for summary in settled),
        dead=dead.total(),
        causes=tuple(dead.most_common()),
        lost=lost.total(),
        losses=tuple(lost.most_common()),
        abstained=abstained.total(),
        abstentions=tuple(abstained.most_common()),
        correlation=correlation,
        paired=paired,
        unit="tokens" if by_tokens else "characters",
        parts=tuple(_part(name, scored) for name in part_names(scored)),
    )


def part_names(scored: Sequence[Digest]) -> list[str]:
    """Return the names of all parts: those of the newest group, then those of older ones."""
    return list(dict.fromkeys(name for summary in reversed(scored) for name in summary.parts))


def _part(name: str, scored: Sequence[Digest]) -> PartFigures:
    having = [summary for summary in scored if name in summary.parts]
    part_digests = [summary.parts[name] for summary in having]
    newest = part_digests[-1]
    values = [value for part_digest in part_digests for value in part_digest.values]
    weights = [part_digest.weight for part_digest in part_digests]
    kind = "gate" if newest.gate else "weighted" if any(weights) else "noted"
    return PartFigures(
        name=name,
        kind=kind,
        weight=newest.weight,
        weights=(min(weights), max(weights)),
        groups=len(part_digests),
        spread=spread_of(values),
        closed=sum(value < 1 for value in values) if newest.gate else 0,
        decided=sum(part_digest.decided for part_digest in part_digests),
        decidable=sum(state.distinct for state in having),
        trace=tuple(part_digest.mean for part_digest in part_digests),
    )


def correlated(groups: Iterable[Sequence[tuple[float, float]]]) -> tuple[float | None, int]:
    """Return Pearson's r of pairs, each minus its group's mean, and the number of pairs.

    The mean is subtracted because the policy learns only from differences within a group. None
    for fewer than three pairs, or if one side does not vary.
    """
    lefts: list[float] = []
    rights: list[float] = []
    for pairs in groups:
        if len(pairs) < 2:
            continue
        left = sum(score for score, _ in pairs) / len(pairs)
        right = sum(two for _, two in pairs) / len(pairs)
        lefts += [score - left for score, _ in pairs]
        rights += [two - right for _, two in pairs]
    across = math.sqrt(math.fsum(left * left for left in lefts))
    up = math.sqrt(math.fsum(two * two for two in rights))
    if len(lefts) < 3 or across < 1e-9 or up < 1e-9:
        return None, len(lefts)
    both = math.fsum(left * two for left, two in zip(lefts, rights, strict=True))
    return max(-1.0, min(1.0, both / across / up)), len(lefts)


def by_step(digests: Sequence[Digest], name: str) -> list[Point]:
    """Return mean and deviation of one part by global step, for the server of the newest group.

    Steps that a later engine run repeats are taken from that run only.
    """
    having = [summary for summary in digests if name in summary.parts and summary.step is not None]
    by_run: dict[int, dict[int, list[float]]] = {}
    for summary in having:
        if summary.server == having[-1].server and summary.step is not None:
            of_run = by_run.setdefault(summary.engine_run, {})
            of_run.setdefault(summary.step, []).extend(summary.parts[name].values)
    points: list[Point] = []
    for run, steps in sorted(by_run.items()):
        first = min(steps)
        points = [point for point in points if point.step < first]
        for step, values in sorted(steps.items()):
            spread = spread_of(values)
            points.append(Point(step, spread.mean, spread.std, engine_run=run))
    return points
