"""Current state: plain records, and the function that applies events to them.

`reduce(state, event)` changes `state` in place and returns the keys of what it changed, so that a
screen repaints only that: "group:ID", "groups", "server:NAME", "servers", "alerts", "mock",
"rewards", "judges", "tries", "progress", "runs", "totals", "proxy". `apply` is the same for a
caller that must go on when a handler fails. Proxy, console, replay and tests use both.

One module per subject, with the names of `core.events`: the records of the subject, then the
handlers of its events, then their table. Where the state needs nothing but the last event of a
kind, it holds that event:

    def _slots(state: "State", server: Server, event: events.SlotsSeen) -> None:
        server.slots = event

    SERVER_HANDLERS = {..., events.SlotsSeen: _of_server(_slots)}

Collections are capped (`GROUP_CAP` etc.); older entries are read from the journal by page.
"""

import logging
from functools import lru_cache

import msgspec

from core.events import Event, GroupEvent, GroupOpened
from core.events.proxy import AlertRaised
from core.events.rewards import JudgeSpent, RewardsWatched, WhatIfChanged
from core.state.common import NOTHING, TEXT_CAP, Dirty, Handlers
from core.state.group import (
    GROUP_CAP,
    GROUP_HANDLERS,
    OPEN_PHASES,
    SEALED_PHASES,
    Candidate,
    Group,
    open_group,
)
from core.state.inbox import InboxItem, note_late
from core.state.mock import MOCK_HANDLERS, Mock
from core.state.progress import PROGRESS_HANDLERS, PairRatings, Progress, RunningLook
from core.state.proxy import PROXY_HANDLERS, AttachedConsole, Totals
from core.state.rating import Lease, PartAgreement, RaterStats, Rating
from core.state.rewards import REWARD_HANDLERS, RewardFault, Rewards
from core.state.runs import RUN_HANDLERS, EngineRun, EngineRuns, RunPoint
from core.state.server import (
    SERVER_HANDLERS,
    Probe,
    Server,
    Span,
    StepStats,
    TrainingRun,
    WeightVersion,
)

log = logging.getLogger(__name__)


class State(msgspec.Struct, kw_only=True):
    """Everything a screen may show."""

    seq: int = 0
    run_id: str = ""
    proxy_url: str = ""
    proxy_pid: int = 0
    client_uuid: str = ""
    proxy_up: bool = False
    """It has started and not ended in order, according to the journal."""
    started_at: float = 0.0
    proxy_version: str = ""
    watch_only: bool = False
    """The proxy only watches: it claims nothing and serves no requests."""
    rating_mode: str = "off"
    consoles: int = 0
    attached: dict[str, AttachedConsole] = msgspec.field(default_factory=dict)
    """The consoles with an id, by id; ids are those of leases."""
    rewards: Rewards = msgspec.field(default_factory=Rewards)
    what_if: WhatIfChanged | None = None
    """The last trial of other rewards."""
    reward_watch: RewardsWatched = msgspec.field(default_factory=RewardsWatched)
    judges: dict[str, JudgeSpent] = msgspec.field(default_factory=dict)
    """By name of the reward part; counts of this run."""
    servers: dict[str, Server] = msgspec.field(default_factory=dict)
    groups: dict[str, Group] = msgspec.field(default_factory=dict)
    """Newest last."""
    inbox: dict[str, InboxItem] = msgspec.field(default_factory=dict)
    """Groups that ended before their vote, newest last."""
    alerts: dict[str, AlertRaised] = msgspec.field(default_factory=dict)
    """By key, with their newest figures."""
    alerts_since: dict[str, float] = msgspec.field(default_factory=dict)
    """Unix seconds when each alert was first raised; unchanged by later figures."""
    dismissed: dict[str, str] = msgspec.field(default_factory=dict)
    """Level of each dismissed alert whose cause persists, by key."""
    mock: Mock | None = None
    totals: Totals = msgspec.field(default_factory=Totals)
    tries: list[Probe] = msgspec.field(default_factory=list)
    """Probes, newest last."""
    progress: dict[str, Progress] = msgspec.field(default_factory=dict)
    """By server: probe set, looks and their verdicts."""
    raters: dict[str, RaterStats] = msgspec.field(default_factory=dict)
    """By name; empty for votes without a name."""
    engine_runs: EngineRuns = msgspec.field(default_factory=EngineRuns)
    """Summaries of the engine runs of all servers."""

    def inbox_ids(self) -> list[str]:
        """Return the ids of the groups of the inbox, newest last; from any thread."""
        return list(self.inbox)

    def open_groups(self) -> list[Group]:
        """Return the groups that are not closed, oldest first."""
        return [group for group in self.groups.values() if group.open]

    def weights(self, server: str, run: int, step: int | None) -> WeightVersion:
        """Return the version of the weights of a server.

        Args:
            server: Name of the server.
            run: Number of the training run; 0 if unknown.
            step: Global step; None if unknown.
        """
        known = self.servers.get(server)
        runs = known.runs if known is not None else ()
        training_run = next((earlier for earlier in reversed(runs) if earlier.number == run), None)
        if training_run is None:
            return WeightVersion(server=server, step=step)
        return WeightVersion(
            server=server, run=training_run.name, step=step, checkpoint=training_run.start
        )

    def run_of(self, server: str) -> int:
        """Return the number of the training run of a server's weights; 0 if unknown."""
        known = self.servers.get(server)
        return 0 if known is None else known.run_number

    def current_weights(self, server: Server) -> WeightVersion:
        """Return the version of the weights that a server has now."""
        return self.weights(server.name, server.run_number, server.step)

    def weights_of(self, group: Group, index: int | None = None) -> WeightVersion:
        """Return the version of the weights that produced a group, or one of its candidates.

        Args:
            group: The group, which may be older than those in state.
            index: The candidate; None for the last claim of the group.
        """
        if index is None or not 0 <= index < len(group.candidates):
            return self.weights(group.server, group.run, group.step)
        candidate = group.candidates[index]
        if candidate.step is None:  # its episode is not claimed yet
            return self.weights(group.server, group.run, group.step)
        version = self.weights(group.server, candidate.run, candidate.step)
        return msgspec.structs.replace(version, later_step=candidate.later_step)

    def weights_text(self, group: Group) -> str:
        """Return the versions of the weights of all candidates of a group."""
        versions = (self.weights_of(group, candidate.index).text for candidate in group.candidates)
        return ", ".join(dict.fromkeys(versions))

    def waiting(self) -> list[Group]:
        """Return the groups that await a rating, most urgent first.

        Groups whose user waits come first, then those with the nearest deadline; a known timeout
        of the waiting client counts as a deadline.
        """
        groups = [group for group in self.groups.values() if group.phase == "AWAITING_RATING"]
        return sorted(
            groups, key=lambda group: (not group.user_waits, _deadline(group), group.opened_at)
        )


def _deadline(group: Group) -> float:
    """Return the last moment to rate the group: its window ends, or its user's client gives up."""
    return min(group.until or 0.0, group.gives_up_at or float("inf"))


# --- events ---------------------------------------------------------------------------------------

_HANDLERS: Handlers = {
    **PROXY_HANDLERS,
    **SERVER_HANDLERS,
    **REWARD_HANDLERS,
    **MOCK_HANDLERS,
    **PROGRESS_HANDLERS,
    **RUN_HANDLERS,
}


def reduce(state: State, event: Event) -> Dirty:
    """Apply one event to the state.

    An event of a group that the state does not have only changes its item in the inbox; a server
    that it does not have is added.

    Returns:
        Keys of what it changed.
    """
    state.seq = event.seq
    if isinstance(event, GroupEvent):
        if event.group_id in state.inbox:
            note_late(state, event)
        if type(event) is GroupOpened:
            open_group(state, event)
        elif (group := state.groups.get(event.group_id)) is None:
            return _group_changed(event.group_id) if event.group_id in state.inbox else NOTHING
        elif (change := GROUP_HANDLERS.get(type(event))) is not None:
            change(state, group, event)
        return _group_changed(event.group_id)
    handler = _HANDLERS.get(type(event))
    return handler(state, event) if handler else NOTHING


_FAILED: set[str] = set()
"""Kinds of events whose failure is in the log."""


def apply(state: State, event: Event) -> Dirty:
    """Apply one event as `reduce` does, and skip it if its handler fails: never raises.

    The journal contains events on which a handler failed, so that the bus and whatever replays a
    journal skip the same ones. The first failure of each kind is logged.

    Returns:
        Keys of what it changed; none if its handler fails.
    """
    try:
        return reduce(state, event)
    except Exception:  # one faulty event must not end a request, nor a start from the journal
        state.seq = event.seq
        if event.kind not in _FAILED:
            _FAILED.add(event.kind)
            log.exception(
                "the reducer failed on event %d (%s): it is skipped; later ones of this kind "
                "that fail are not logged",
                *(event.seq, event.kind),
            )
        return NOTHING


@lru_cache(maxsize=256)
def _group_changed(group_id: str) -> Dirty:
    return frozenset((f"group:{group_id}", "groups", "totals"))
