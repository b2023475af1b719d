"""Handlers of the events of the reward source, its judges, trials and monitoring."""

from msgspec.structs import replace

from core.events.rewards import JudgeSpent, RewardsChanged, RewardsWatched, WhatIfChanged
from core.reducer.common import Dirty, Handlers, record_of
from core.reducer.runs import note_rewards
from core.state import JudgeSpend, RewardFault, Rewards, State

JUDGE_CAP = 32
REWARDS: Dirty = frozenset(("rewards",))
JUDGES: Dirty = frozenset(("judges", "rewards"))


def _rewards(state: State, event: RewardsChanged) -> Dirty:
    note_rewards(state, event)
    before = state.rewards
    same = event.version == before.version and before.since
    state.rewards = record_of(
        Rewards,
        event,
        since=before.since if same else (event.at if event.version else 0.0),
        fault=_fault(before.fault, event),
    )
    return REWARDS


def _fault(last: RewardFault | None, event: RewardsChanged) -> RewardFault | None:
    """Return the last fault after `event`; a fault that is reported again keeps its time."""
    if event.ok:
        if last is not None and last.mended_at is None:
            last.mended_at = event.at
        return last
    if event.waits and not event.cause:  # not a fault: it is still loading
        return last
    fault = record_of(RewardFault, event, judge=event.judge_in_trouble)
    if last is not None and last.mended_at is None and last.cause == fault.cause:
        fault.at = last.at
    return fault


def _spent(state: State, event: JudgeSpent) -> Dirty:
    state.judges.pop(event.judge, None)
    state.judges[event.judge] = record_of(JudgeSpend, event)
    while len(state.judges) > JUDGE_CAP:
        del state.judges[next(iter(state.judges))]
    return JUDGES


def clear_judges(state: State) -> Dirty:
    """Drop the counts of each judge: a new proxy counts from zero."""
    state.judges.clear()
    return JUDGES


def _what_if(state: State, event: WhatIfChanged) -> Dirty:
    state.what_if = event
    return REWARDS


def _watched(state: State, event: RewardsWatched) -> Dirty:
    state.reward_watch = event
    return REWARDS


def fail_trial(state: State) -> Dirty:
    """Mark a trial that the previous proxy did not finish as failed, and restart the monitoring."""
    state.reward_watch = RewardsWatched()
    if state.what_if is not None and not state.what_if.over:
        ended = "the proxy ended meanwhile"
        state.what_if = replace(state.what_if, phase="failed", cause=ended)
    return REWARDS


REWARD_HANDLERS: Handlers = {
    RewardsChanged: _rewards,
    JudgeSpent: _spent,
    WhatIfChanged: _what_if,
    RewardsWatched: _watched,
}
