"""What trials of other rewards, and the watch over the rewards, make of the state."""

from collections.abc import Callable
from typing import Any

from core.events.base import Event
from core.events.trial import RewardsWatched, WhatIfChanged
from core.state import State
from core.state.trial import RewardWatch, WhatIf

Dirty = frozenset[str]
_REWARDS: Dirty = frozenset(("rewards",))


def _what_if(state: State, event: WhatIfChanged) -> Dirty:
    state.what_if = WhatIf(
        what=event.what,
        phase=event.phase,
        weights=event.weights,
        done=event.done,
        total=event.total,
        began=event.began,
        ended=0.0 if event.phase == "doing" else event.at,
        cause=event.cause,
        summary=event.summary,
    )
    return _REWARDS


def _watched(state: State, event: RewardsWatched) -> Dirty:
    state.reward_watch = RewardWatch(
        figures=event.figures,
        groups=event.groups,
        low=event.low,
        high=event.high,
        mean=event.mean,
        std=event.std,
        outliers=event.outliers,
        at=event.at,
    )
    return _REWARDS


def lose_trial(state: State) -> Dirty:
    """A proxy that began anew goes on with no trial, and watches from the beginning."""
    state.reward_watch = RewardWatch()
    if state.what_if is not None and not state.what_if.over:
        state.what_if.phase = "failed"
        state.what_if.cause = "the proxy ended meanwhile"
    return _REWARDS


TRIAL_HANDLERS: dict[type[Event], Callable[[State, Any], Dirty]] = {
    WhatIfChanged: _what_if,
    RewardsWatched: _watched,
}
