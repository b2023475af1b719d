"""What-if computation: other weights on stored part values of the groups in view."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ajet_swarm.common.text import one_line, plural
from console.models.reward_figures import Digests
from console.text.format import UNKNOWN, number
from console.text.lines import Line, fit, flow
from console.text.wrap import wrapped
from core.events import RewardPart, TrialGroup, TrialSummary
from core.scoring.advantage import RewardError
from core.state import Group, State

# The arithmetic of the rewards is imported on use, so that screens open without the proxy.
if TYPE_CHECKING:
    from proxy.rewards.model.spec import PartSpec, Weigher
    from proxy.rewards.rescore.results import Rescored

STEP = 0.05


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """Result of a computation with other weights."""

    summary: TrialSummary
    missing: int
    """Groups left out because an older model scored them without a part that counts."""


def can_weigh(state: State) -> bool:
    """Return whether there are weights: a hook folder alone has none."""
    return len(state.rewards.parts) > 1


def tally(state: State, last: int, weights: Mapping[str, float]) -> WhatIfResult:
    """Recompute the newest groups with these weights instead of the active ones."""
    from proxy.rewards.model.spec import Weigher
    from proxy.rewards.rescore.results import summary_of

    specs = [_spec(part, weights) for part in state.rewards.parts if part.enabled]
    weigher = Weigher(specs)
    needed = frozenset(spec.name for spec in specs if spec.kind in _ALWAYS)
    results: list[Rescored] = []
    missing = 0
    digests = [digest for digest in Digests().last(state, last) if digest.scored]
    # A part of the model that scored a group has no value there if it does not apply to its query.
    had: dict[str, set[str]] = defaultdict(set)
    for digest in digests:
        had[state.groups[digest.group_id].version].update(digest.parts)
    had[state.rewards.version].update(needed)
    for digest in digests:
        group = state.groups[digest.group_id]
        if needed <= had[group.version]:
            results.append(_rescore(group, specs, weigher))
        else:
            missing += 1
    return WhatIfResult(summary_of(results, state.rewards.version), missing)


_ALWAYS = frozenset({"length", "relevance", "diversity", "repetition", "finished", "hook", "judge"})
"""Kinds that apply to many groups: one that an older model gave to none was no part of it."""


def _spec(part: RewardPart, weights: Mapping[str, float]) -> "PartSpec":
    from proxy.rewards.model.spec import PartSpec

    value = weights.get(part.name, part.weight)
    return PartSpec(
        part.name,
        part.kind,
        weight=1.0 if part.share else value,
        share=max(0.0, min(1.0, value)) if part.share else None,
        gate=part.gate,
    )


def _rescore(group: Group, specs: Sequence["PartSpec"], weigher: "Weigher") -> "Rescored":
    from proxy.rewards.model.spec import NothingApplies
    from proxy.rewards.part import PartValue
    from proxy.rewards.rescore.results import Case, Rescored
    from proxy.rewards.source import Abstention, GroupContext

    scored = [candidate for candidate in group.candidates if candidate.parts]
    part_values = [
        {part.name: PartValue(part.value, part.reason) for part in candidate.parts}
        for candidate in scored
    ]
    columns = []
    for spec in specs:
        column = [part_value.get(spec.name) for part_value in part_values]
        columns.append(column if any(value is not None for value in column) else None)
    human = group.source == "human"
    sent = {
        candidate.index: candidate.reward
        for candidate in group.candidates
        if candidate.reward is not None
    }
    before = {
        candidate.index: value
        for candidate in group.candidates
        if (
            value := candidate.auto_reward
            if human
            else sent.get(candidate.index, candidate.auto_reward)
        )
        is not None
    }
    context = GroupContext(group.group_id, "", "", group.query, (), {}, None, ())
    case = Case(context, before, sent if human else {}, source=group.source)
    try:
        return Rescored(case, weigher.scores([candidate.index for candidate in scored], columns))
    except (NothingApplies, RewardError) as why:
        cause = why.what if isinstance(why, RewardError) else str(why)
        return Rescored(case, abstention=Abstention("model", cause))


# --- in words -----------------------------------------------------------------------------------


def weight_line(part: RewardPart, weights: Mapping[str, float], width: int) -> Line:
    """Return a part with its active weight and the one being tried."""
    tried = weights.get(part.name)
    kind = "gate" if part.gate else "share" if part.share else "weight"
    now = UNKNOWN if part.gate else f"{part.weight:g}"
    room = max(12, min(28, width - 40))
    line: Line = (
        (f" {fit(one_line(part.name, 60), room)} ", "bold" if part.enabled else "$muted"),
        (fit(kind if part.enabled else "off", 7), "$muted"),
        (fit(now, 8, right=True), ""),
    )
    if tried is None or part.gate:
        return line
    return (*line, ("  to ", "$muted"), (f"{tried:g}", "bold $winner"))


def summary_lines(
    summary: TrialSummary, missing: int = 0, width: int = 160, *, read_only: bool = False
) -> list[Line]:
    """Return the result in three lines, and further notes."""
    remedy = "" if read_only else "r re-scores them"
    if not summary.compared:
        left = f": {plural(missing, 'group')} of older rewards" if missing else ""
        text = f"No group in view can be compared{left}" + (f"; {remedy}" if remedy else "")
        return [((line, "$muted"),) for line in wrapped(text, width)]
    lines: list[Line] = [
        (
            ("winner flips ", "$muted"),
            (f"{summary.flips}", "bold $warning" if summary.flips else "bold"),
            (f" of {plural(summary.compared, 'group')}", "$muted"),
        ),
        (
            ("dead groups gained ", "$muted"),
            (f"{summary.died}", "bold $warning" if summary.died else "bold"),
            ("   lost ", "$muted"),
            (f"{summary.revived}", "bold $winner" if summary.revived else "bold"),
            (f"   ({summary.dead_before} before, {summary.dead_after} after)", "$muted"),
        ),
        (
            ("mean ", "$muted"),
            (f"{number(summary.mean_before)} to {number(summary.mean_after)}", "bold"),
            ("   spread ", "$muted"),
            (f"{number(summary.spread_before)} to {number(summary.spread_after)}", "bold"),
        ),
    ]
    more = []
    if summary.outside:
        more.append(f"! rewards leave 0 to 1 in {plural(summary.outside, 'group')}")
    if summary.gained:
        more.append(f"{plural(summary.gained, 'group')} had no reward and now would")
    if summary.by_hand:
        more.append(f"human-rated: the same winner in {summary.by_hand_kept} of {summary.by_hand}")
    if summary.abstained:
        cause = one_line(summary.abstentions[0][0], 60) if summary.abstentions else ""
        more.append(f"? {summary.abstained} not scored: {cause}")
    more += [
        f"! {times} differ from then: {one_line(note, 70)}" for note, times in summary.notes[:1]
    ]
    if missing:
        more.append(
            f"{plural(missing, 'group')} of older rewards left out"
            + (f": {remedy}" if remedy else "")
        )
    return [*lines, *flow([((text, "$muted"),) for text in more], width)]


def group_lines(trial: TrialGroup, width: int) -> tuple[Line, ...]:
    """Return a group that changes: its query, then each reward before and after."""
    rows = zip(trial.before, trial.after, strict=False)
    moves = "   ".join(f"{number(before)} to {number(after)}" for before, after in rows)
    winner = ""
    if trial.winner_before != trial.winner_after:
        winner = f"   winner {_place(trial.winner_before)} to {_place(trial.winner_after)}"
    return (
        ((f" {fit(one_line(trial.query, 200), max(10, width - 2))}", "bold"),),
        ((f"   {fit(moves + winner, max(10, width - 4))}", "$muted"),),
    )


def _place(index: int | None) -> str:
    return "none" if index is None else str(index + 1)
