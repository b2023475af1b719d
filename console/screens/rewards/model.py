"""The rewards of the newest groups in figures, and their last fault, computed from the state.

A `Digest` summarizes one group and is rebuilt only when the group changes; `figures` combines the
digests of the last groups.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ajet_swarm.common.text import one_line, plural
from console.screens.progress.model import newest_runs
from console.text.causes import cause_words
from console.text.format import clock
from console.ui.curve import Point
from core.events import Part, RewardPart
from core.events.causes import NotScored
from core.scoring.advantage import is_dead
from core.scoring.agreement import top
from core.state import Candidate, Group, RewardFault, State
from core.state.server import hand_score

HOOK = "on_compute_relative_reward.py"
"""The file of a hook folder that computes the rewards."""
GONE, OFF = "gone", "off"
"""Kinds of a part that is no longer in the model, and of one that is switched off."""
_TOGETHER = 2.0
"""Most seconds between groups that failed for the same cause."""
_FRAME = re.compile(r'^[^\S\n]*File "([^"\n]{1,4000})", line (\d{1,9})', re.MULTILINE)
WINDOWS = (100, 500, 20)
"""Numbers of groups that the figures can cover; the first is the default."""


def next_window(present: int) -> int:
    """Return the number of groups that `w` switches to."""
    return WINDOWS[(WINDOWS.index(present) + 1) % len(WINDOWS)]


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
    indices: tuple[int, ...]
    """Candidate of each value."""
    ranks: tuple[int, ...]
    """Rank of each value's answer by its reward, from 1; empty where the rewards are equal."""
    weight: float
    gate: bool
    decided: bool
    """Whether without it another answer would have won, or several would have tied."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The rewards of one group."""

    group: Group
    distinct: bool
    """Its automatic rewards differ."""
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
    rewards: tuple[float, ...]
    """Automatic rewards, also where human ones are sent: votes have another scale."""
    tokens: tuple[tuple[int, float], ...]
    """Length in tokens and reward of each answer with a known length."""
    characters: tuple[tuple[int, float], ...]
    """The same in characters, for answers that the state holds in full."""
    parts: Mapping[str, PartDigest]
    """Empty for a group that was not scored."""

    @property
    def by_hand(self) -> bool:
        """Whether the rewards that were sent are a person's."""
        return self.group.source == "human"


def digest(group: Group) -> Digest:
    """Return the digest of `group` by the state now."""
    by_hand = group.source == "human"
    paired = [
        (candidate, reward)
        for candidate in group.candidates
        if (reward := _automatic(candidate, by_hand)) is not None
    ]
    over = group.phase in ("ABORTED", "FAILED") or group.discarded
    sent = group.sealed_at is not None and not over
    scored = [candidate for candidate in group.candidates if candidate.parts]
    automatic = [candidate.auto_reward for candidate in scored]
    distinct = not is_dead([reward for reward in automatic if reward is not None])
    return Digest(
        group=group,
        distinct=distinct,
        hand=hand_score(group) if by_hand else None,
        settled=group.sealed_at is not None or over,
        sent=sent,
        dead=group.dead if sent else "",
        lost=_lost(group) if over else "",
        rewards=tuple(reward for _, reward in paired),
        tokens=tuple((answer.tokens, reward) for answer, reward in paired if answer.tokens),
        characters=tuple((len(answer.text), reward) for answer, reward in paired if not answer.cut),
        parts=_parts(scored, distinct, _ranks(paired)),
    )


def _automatic(candidate: Candidate, by_hand: bool) -> float | None:
    """Return the automatic reward of a candidate, else the reward that was sent."""
    known = candidate.auto_reward
    return candidate.reward if known is None and not by_hand else known


def _lost(group: Group) -> str:
    if group.cause_kind == NotScored.kind:
        return ""  # it is counted as not scored
    if group.discarded:
        return group.lost
    cause = f": {cause_words(group)}" if group.cause else ""
    return f"{group.phase.lower()}{cause}"


def _ranks(paired: Sequence[tuple[Candidate, float]]) -> dict[int, int]:
    """Return the rank by reward of each candidate that has one; empty where they are equal."""
    if is_dead([reward for _, reward in paired]):
        return {}
    order = sorted(paired, key=lambda pair: (-pair[1], pair[0].index))
    return {candidate.index: place for place, (candidate, _) in enumerate(order, 1)}


def _parts(
    scored: Sequence[Candidate], distinct: bool, ranks: Mapping[int, int]
) -> dict[str, PartDigest]:
    by_name: dict[str, dict[int, Part]] = {}
    for candidate in scored:
        for part in candidate.parts:
            by_name.setdefault(part.name, {})[candidate.index] = part

    def winners(without: str = "") -> frozenset[int]:
        rewards = {answer.index: reward_of(answer.parts, without=without) for answer in scored}
        return top(rewards)

    whole = winners()
    digests = {}
    for name, parts in by_name.items():
        *_, last = parts.values()
        counts = distinct and (last.gate or last.weight != 0)
        digests[name] = PartDigest(
            tuple(part.value for part in parts.values()),
            tuple(parts),
            tuple(ranks[index] for index in parts) if ranks.keys() >= parts.keys() else (),
            last.weight,
            last.gate,
            counts and winners(without=name) != whole,
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
            same = old is not None and old[0] == seen and old[1].group is group
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
    scored = [summary for summary in digests if summary.parts]
    rewards = [reward for summary in digests for reward in summary.rewards]
    scores = [summary.hand for summary in digests if summary.hand is not None]
    settled = [summary for summary in digests if summary.settled]
    dead = Counter(summary.dead for summary in settled if summary.dead)
    lost = Counter(summary.lost for summary in settled if summary.lost)
    abstained = Counter(each.group.abstained for each in digests if each.group.abstained)
    by_tokens = any(summary.tokens for summary in digests)
    pairs = [summary.tokens if by_tokens else summary.characters for summary in digests]
    correlation, paired = correlated(pairs)
    names = dict.fromkeys(name for summary in reversed(scored) for name in summary.parts)
    return RewardFigures(
        groups=len(digests),
        scored=len(scored),
        by_hand=sum(summary.by_hand for summary in digests),
        hand=statistics.fmean(scores) if scores else None,
        present=sum(summary.group.version == version for summary in scored),
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
        parts=tuple(_part(name, scored) for name in names),
    )


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
        trace=tuple(statistics.fmean(part_digest.values) for part_digest in part_digests),
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
        for side, values in zip((lefts, rights), zip(*pairs, strict=True), strict=True):
            mean = sum(values) / len(values)
            side += [value - mean for value in values]
    across, up = math.hypot(*lefts), math.hypot(*rights)
    if len(lefts) < 3 or across < 1e-9 or up < 1e-9:
        return None, len(lefts)
    both = math.fsum(left * right for left, right in zip(lefts, rights, strict=True))
    return max(-1.0, min(1.0, both / across / up)), len(lefts)


def by_step(digests: Sequence[Digest], name: str) -> list[Point]:
    """Return mean and deviation of one part by global step, for the server of the newest group.

    Steps that a later engine run repeats are taken from that run only.
    """
    having = [summary for summary in digests if name in summary.parts]
    having = [summary for summary in having if summary.group.step is not None]
    by_run: dict[int, dict[int, list[float]]] = {}
    for summary in having:
        group = summary.group
        if group.server == having[-1].group.server and group.step is not None:
            of_run = by_run.setdefault(group.engine_run, {})
            of_run.setdefault(group.step, []).extend(summary.parts[name].values)
    spreads = (
        (run, step, spread_of(values))
        for run, steps in sorted(by_run.items())
        for step, values in sorted(steps.items())
    )
    return newest_runs(
        (run, step, Point(step, spread.mean, spread.std, engine_run=run))
        for run, step, spread in spreads
    )


# --- the parts of the model ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part: of the active model, of groups, or of both."""

    name: str
    part: RewardPart | None
    """The part in the model; None when the model has no such part."""
    figures: PartFigures | None
    """None while no group was scored with it; its kind marks a part that is off or gone."""
    trace: int = 0
    """Cells of its trace."""


def part_rows(
    model: Sequence[RewardPart], parts_by_name: Sequence[PartFigures]
) -> tuple[PartRow, ...]:
    """Return the parts of the model in its order, then those that are gone.

    The order does not follow the groups: some parts apply to some groups only, so rows would move
    with each group.
    """
    scored = {part.name: part for part in parts_by_name}
    rows = []
    for part in model:
        known = scored.pop(part.name, None)
        if known is not None and not part.enabled:
            known = replace(known, kind=OFF)
        rows.append(PartRow(part.name, part, known))
    for known in scored.values():
        gone = len(model) > 1 and known.kind != "noted"
        rows.append(PartRow(known.name, None, replace(known, kind=GONE) if gone else known))
    return tuple(rows)


def first_varied(rows: Sequence[PartRow]) -> str:
    """Return the name of the first part whose values differ; empty where there is none."""
    varied = (row.name for row in rows if row.figures is not None and row.figures.spread.std > 0)
    return next(varied, "")


def find_part(state: State, name: str) -> RewardPart | None:
    """Return the part of the model with that name; None for a value recorded by a hook."""
    return next((part for part in state.rewards.parts if part.name == name), None)


# --- the last fault --------------------------------------------------------------------------


def source_kind(source: str) -> str:
    """Return `built-in`, `hooks`, `file` or nothing."""
    if source.endswith((".yaml", ".yml")):
        return "file"
    return {"": "", "builtin": "built-in"}.get(source, "hooks")


@dataclass(frozen=True, slots=True)
class Fault:
    """The last error of the rewards."""

    what: str
    """`did not load`, `ended`, or the object it failed on."""
    cause: str
    traceback: str
    file: str
    line: int
    at: float
    resolution: str
    """How it was fixed; empty while it lasts."""
    group_id: str = ""
    """The group it failed on; empty when it did not load."""

    @property
    def place(self) -> str:
        """File and line; empty if unknown."""
        return f"{self.file}:{self.line}" if self.file else ""


def last_fault(state: State) -> Fault | None:
    """Return the present fault, else the newest of those that were fixed; None without any."""
    fault, loading = _group_fault(state), state.rewards.fault
    if loading is None:
        return fault
    resolution = f"fixed at {clock(loading.mended_at)}" if loading.mended_at is not None else ""
    if fault is not None and resolution and fault.at > loading.at:
        return fault
    place = loading.file, loading.line, loading.at
    return Fault(_what(loading), loading.cause, loading.traceback, *place, resolution)


def _what(loading: RewardFault) -> str:
    if not loading.judge:
        return "ended" if loading.fell else "did not load"
    trouble = "not reached yet" if loading.level == "warning" else "in trouble"
    return f"judge {one_line(loading.judge, 40)} {trouble}"


def _group_fault(state: State) -> Fault | None:
    """Return the newest group the rewards failed on, and how many were scored since.

    Among groups that failed within `_TOGETHER` of it, one with a known place is preferred,
    because only one of several groups may record the place.
    """
    since = 0
    fault: Fault | None = None
    tried = [(group.scored_at, group) for group in state.groups.values() if group.scored_at]
    for at, group in sorted(tried, key=lambda pair: pair[0], reverse=True):
        if fault is not None and (at < fault.at - _TOGETHER or not group.abstained):
            break
        if not group.abstained:
            since += 1
            continue
        file, line = group.fault_file, group.fault_line
        if not file:
            file, line = place_of(group.traceback)
        if fault is None or line:
            over = since and not group.open
            resolution = f"{plural(since, 'group')} scored since" if over else ""
            what = "failed on a group" + (", which waits for you" if group.rateable else "")
            cause, trace = group.abstained, group.traceback
            fault = Fault(what, cause, trace, file, line, at, resolution, group.group_id)
        if line:
            break
    return fault


def place_of(traceback: str) -> tuple[str, int]:
    """Return file and line of the innermost frame of a traceback; an empty name without one."""
    frames = _FRAME.findall(traceback)
    return (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)


def place_to_open(state: State) -> tuple[str, int]:
    """Return the place for the editor: that of the fault, else the hook or file; else empty."""
    fault = last_fault(state)
    if fault is not None and fault.file and fault.line:
        return fault.file, fault.line
    source = state.rewards.source
    if source_kind(source) == "file":
        return source, 1
    return (str(Path(source).expanduser() / HOOK), 1) if source_kind(source) == "hooks" else ("", 0)
