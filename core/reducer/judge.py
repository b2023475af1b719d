"""What the counts of judges make of the state."""

from collections.abc import Callable
from typing import Any

from core.events.base import Event
from core.events.judge import JudgeSpent
from core.state import State
from core.state.judge import JudgeSpend

Dirty = frozenset[str]
JUDGES: Dirty = frozenset(("judges", "rewards", "totals"))
JUDGE_CAP = 32

_SHARED = tuple(
    name for name in JudgeSpend.__struct_fields__ if name in JudgeSpent.__struct_fields__
)


def _spent(state: State, event: JudgeSpent) -> Dirty:
    before = state.judges.pop(event.judge, None) or JudgeSpend(judge=event.judge)
    now = JudgeSpend(**{name: getattr(event, name) for name in _SHARED})
    state.judges[event.judge] = now
    while len(state.judges) > JUDGE_CAP:
        del state.judges[next(iter(state.judges))]
    totals = state.totals
    totals.judge_calls += max(0, now.calls - before.calls)
    totals.judge_tokens += max(0, now.tokens - before.tokens)
    totals.judge_hits += max(0, now.hits - before.hits)
    totals.judge_cost += max(0.0, now.cost - before.cost)
    return JUDGES


def forget_judges(state: State) -> Dirty:
    """A proxy that began anew counts from nought; the totals stay."""
    state.judges.clear()
    return JUDGES


JUDGE_HANDLERS: dict[type[Event], Callable[[State, Any], Dirty]] = {JudgeSpent: _spent}
