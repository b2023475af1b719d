"""The reward source, its judges, the last trial and the monitoring, and their handlers."""

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from core import events
from core.state.common import Dirty, Handlers, record_of
from core.state.runs import note_rewards

if TYPE_CHECKING:
    from core.state import State


class RewardFault(msgspec.Struct, kw_only=True):
    """One failure of the reward source: it could not be loaded, or its process ended."""

    cause: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    at: float = 0.0
    mended_at: float | None = None
    """Unix seconds when it was loaded again; None while the fault persists."""
    judge: str = ""
    """Name of the judge that cannot be reached; empty if the fault is not a judge's."""
    level: str = "error"
    fell: bool = False
    """It was loaded before, and its process ended."""


class Rewards(msgspec.Struct, kw_only=True):
    """The reward source."""

    source: str = ""
    ok: bool = True
    version: str = ""
    since: float = 0.0
    """Unix seconds since which this version is in use; 0 without one."""
    waits: str = ""
    """Name of the part that the newest rewards wait for."""
    fault: RewardFault | None = None
    """The last fault of this run, whether it persists or not."""
    parts: tuple[events.RewardPart, ...] = ()
    """Parts of the version in use."""


JUDGE_CAP = 32
REWARDS: Dirty = frozenset(("rewards",))
JUDGES: Dirty = frozenset(("judges", "rewards"))


def _rewards(state: "State", event: events.RewardsChanged) -> Dirty:
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


def _fault(last: RewardFault | None, event: events.RewardsChanged) -> RewardFault | None:
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


def _spent(state: "State", event: events.JudgeSpent) -> Dirty:
    state.judges.pop(event.judge, None)
    state.judges[event.judge] = event
    while len(state.judges) > JUDGE_CAP:
        del state.judges[next(iter(state.judges))]
    return JUDGES


def clear_judges(state: "State") -> Dirty:
    """Drop the counts of each judge: a new proxy counts from zero."""
    state.judges.clear()
    return JUDGES


def _what_if(state: "State", event: events.WhatIfChanged) -> Dirty:
    state.what_if = event
    return REWARDS


def _watched(state: "State", event: events.RewardsWatched) -> Dirty:
    state.reward_watch = event
    return REWARDS


def fail_trial(state: "State") -> Dirty:
    """Mark a trial that the previous proxy did not finish as failed, and restart the monitoring."""
    state.reward_watch = events.RewardsWatched()
    if state.what_if is not None and not state.what_if.over:
        ended = "the proxy ended meanwhile"
        state.what_if = replace(state.what_if, phase="failed", cause=ended)
    return REWARDS


REWARD_HANDLERS: Handlers = {
    events.RewardsChanged: _rewards,
    events.JudgeSpent: _spent,
    events.WhatIfChanged: _what_if,
    events.RewardsWatched: _watched,
}
