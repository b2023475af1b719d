"""Other weights on the stored part values of groups: what they would change."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.events import RewardPart, TrialSummary
from core.scoring.advantage import RewardError
from core.state import Group, State

# The arithmetic of the rewards is imported on use, so that screens open without the proxy.
if TYPE_CHECKING:
    from proxy.rewards.model.spec import PartSpec, Weigher
    from proxy.rewards.rescore.cases import Rescored


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """Result of a computation with other weights."""

    summary: TrialSummary
    missing: int
    """Groups left out because an older model scored them without a part that counts."""


def can_weigh(state: State) -> bool:
    """Return whether there are weights: a hook folder alone has none."""
    return len(state.rewards.parts) > 1


def tally(state: State, groups: Sequence[Group], weights: Mapping[str, float]) -> WhatIfResult:
    """Recompute scored groups, oldest first, with these weights instead of the active ones."""
    from proxy.rewards.model.spec import Weigher
    from proxy.rewards.rescore.cases import summary_of

    specs = [_spec(part, weights) for part in state.rewards.parts if part.enabled]
    weigher = Weigher(specs)
    needed = frozenset(spec.name for spec in specs if spec.kind in _ALWAYS)
    # A part of the model that scored a group has no value there if it does not apply to its query.
    had: dict[str, set[str]] = defaultdict(set, {state.rewards.version: set(needed)})
    for group in groups:
        had[group.version] |= {part.name for each in group.candidates for part in each.parts}
    comparable = [group for group in groups if needed <= had[group.version]]
    results = [_rescore(group, specs, weigher) for group in comparable]
    return WhatIfResult(summary_of(results, state.rewards.version), len(groups) - len(comparable))


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
    from proxy.rewards.rescore.cases import Case, Rescored
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
    sent, before = {}, {}
    for candidate in group.candidates:
        if candidate.reward is not None:
            sent[candidate.index] = candidate.reward
        known = candidate.auto_reward if human or candidate.reward is None else candidate.reward
        if known is not None:
            before[candidate.index] = known
    context = GroupContext(group.group_id, "", "", group.query, (), {}, None, ())
    case = Case(context, before, sent if human else {}, source=group.source)
    try:
        return Rescored(case, weigher.scores([candidate.index for candidate in scored], columns))
    except (NothingApplies, RewardError) as why:
        cause = why.what if isinstance(why, RewardError) else str(why)
        return Rescored(case, abstention=Abstention("model", cause))
