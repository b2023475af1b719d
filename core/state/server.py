"""Training runs of a swarm server, and the version of the weights that produced an answer.

One swarm server: engine, pool, steps, clients, job, operation, probes, and their handlers.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from core import events
from core.scoring.agreement import top
from core.state.common import NOTHING, TEXT_CAP, Dirty, Handler, Handlers, record_of
from core.state.runs import note_engine, note_model, note_seen, note_update, note_weights

if TYPE_CHECKING:
    from core.state import Group, State

UNKNOWN = "-"
"""Stands for an unknown part of a version."""
_PLAIN = ":+@=~"
"""Characters besides letters, digits and `_.-` that need no escape in a version."""


class TrainingRun(msgspec.Struct, kw_only=True):
    """A sequence of policy updates in which every global step stands for one state of the weights.

    A server that reports no id of its run has a new one at each observed start.
    """

    number: int
    name: str
    start: str = ""
    """Checkpoint or model that its first weights came from; empty for the shipped weights of the
    embedded engine, or if unknown."""
    engine_run: int = 0
    """`Server.engine_run` in which it was last observed."""


class WeightVersion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weights that produced an answer: server, training run, global step."""

    server: str
    run: str = ""
    """Name of the training run; empty if unknown."""
    step: int | None = None
    """Global step; None if unknown."""
    later_step: int | None = None
    """Global step when the answer had arrived, if the step changed since the claim and the server
    does not report which of the two weights it used; else None."""
    checkpoint: str = ""
    """Checkpoint or model that the run began with; empty for shipped weights, or if unknown."""

    @property
    def text(self) -> str:
        """`SERVER/RUN/STEP[/CHECKPOINT]` in ASCII without line breaks.

        STEP is `7-8` if it changed between claim and answer; `-` stands for an unknown part.
        """
        return _text(self)


@lru_cache(maxsize=256)
def _text(version: WeightVersion) -> str:
    step = UNKNOWN if version.step is None else str(version.step)
    if version.later_step is not None:
        step = f"{step}-{version.later_step}"
    parts = [_quoted(version.server), _quoted(version.run), step]
    if version.checkpoint:
        parts.append(quote(version.checkpoint, safe=_PLAIN + "/"))
    return "/".join(parts)


def _quoted(name: str) -> str:
    """Return a name without a slash, `-` if it is empty."""
    return quote(name, safe=_PLAIN) or UNKNOWN


SPAN_CAP = 400
STEP_CAP = 500
PROBE_CAP = 50
RUN_CAP = 100
"""Maximum number of training runs of a server."""


class Span(msgspec.Struct, kw_only=True):
    """One period of an engine in one state."""

    state: str
    since: float
    step: int | None = None


class StepStats(msgspec.Struct, kw_only=True):
    """Figures of the rewards sent under one global step, and of its update."""

    step: int
    engine_run: int = 0
    """`Server.engine_run` when the step began."""
    run: int = 0
    """Number of the training run; 0 if unknown."""
    groups: int = 0
    dead: int = 0
    rewards: int = 0
    """Number of rewards sent."""
    mean: float = 0.0
    square: float = 0.0
    """Mean and mean square of the rewards sent, automatic or human."""
    auto: int = 0
    """Number of answers with an automatic reward, including those with a human reward sent."""
    auto_mean: float = 0.0
    auto_square: float = 0.0
    by_hand: int = 0
    """Groups rated by a person."""
    hand: int = 0
    """Number of these groups with an automatic winner."""
    hand_mean: float = 0.0
    """Mean human reward of their automatic winners: the share of wins for votes that name the best
    answer, the mean score for votes that are scores."""
    version: str = ""
    """Version of the automatic rewards of its newest group; empty before the first one."""
    dataset: str = ""
    """Dataset of its newest group of the mock user; empty if all are of users."""
    mode: str = ""
    """Rating mode when its newest group was sealed."""
    update: dict[str, float] = msgspec.field(default_factory=dict)
    """Figures of its update; empty before it, or if unknown."""
    update_source: str = ""
    """`engine` or `pool`, see `core.events.UpdateDone`."""

    @property
    def std(self) -> float:
        """Population standard deviation of the rewards sent."""
        return math.sqrt(max(self.square - self.mean * self.mean, 0.0))

    @property
    def auto_std(self) -> float:
        """Population standard deviation of the automatic rewards."""
        return math.sqrt(max(self.auto_square - self.auto_mean * self.auto_mean, 0.0))


class Server(msgspec.Struct, kw_only=True):
    """A swarm server at its last reading."""

    name: str
    url: str
    own: bool = False
    """It is the home's embedded engine."""
    state: str = "CANNOT_CONNECT"
    raw: str = ""
    detail: str = ""
    step: int | None = None
    engine_run: int = 0
    """Number of starts of its engine so far; a run lasts from a start to the stop."""
    runs: list[TrainingRun] = msgspec.field(default_factory=list)
    """Training runs of its weights, newest last."""
    since: float = 0.0
    """Unix seconds when it entered the state."""
    lost: str = ""
    """Why it does not answer; empty if it does."""
    seen_at: float | None = None
    """Unix seconds of its last answer; None while it answers."""
    expected_until: float = 0.0
    """Unix seconds until which it may still be starting, in this run of the proxy."""
    pool: events.PoolChanged | None = None
    slots: events.SlotsSeen | None = None
    """Holders of its episodes; known only in watch-only mode."""
    spans: list[Span] = msgspec.field(default_factory=list)
    steps: list[StepStats] = msgspec.field(default_factory=list)
    checkpoints: tuple[events.Checkpoint, ...] | None = None
    """Its checkpoints, newest first; None if it offers none."""
    checkpoints_more: int = 0
    """Number of older checkpoints that are not in the list."""
    job: events.JobSent | None = None
    """The last job it accepted from this proxy; None before the first."""
    foreign_start: float = 0.0
    """Unix seconds of the last start by another client; 0 after a start from this proxy."""
    work: events.WorkChanged | None = None
    """The operation in progress on its engine, or the last one."""

    @property
    def training_run(self) -> TrainingRun | None:
        """The training run of its weights; None if unknown, as right after a start."""
        newest = self.runs[-1] if self.runs else None
        return newest if newest is not None and newest.engine_run == self.engine_run else None

    @property
    def run_number(self) -> int:
        """Number of the training run of its weights; 0 if unknown."""
        run = self.training_run
        return 0 if run is None else run.number

    def is_starting(self, now: float) -> bool:
        """Return whether a server that has not answered yet may still be starting."""
        return bool(self.lost) and not self.seen_at and now < self.expected_until

    def is_finished(self, step: StepStats) -> bool:
        """Return whether the update of `step` is done: it has figures, or a later step began."""
        newest = self.steps[-1].step if self.steps else 0
        return bool(step.update) or step.step < max(self.step or 0, newest)

    @property
    def last_update(self) -> StepStats | None:
        """The newest step whose update has figures."""
        return next((step for step in reversed(self.steps) if step.update), None)


class Probe(msgspec.Struct, kw_only=True):
    """One prompt sent by the operator as an eval episode."""

    try_id: str
    server: str
    group_id: str
    prompt: str
    step: int | None = None
    run: int = 0
    """Number of the training run of the policy; 0 if unknown."""
    at: float = 0.0
    over: bool = False
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    cut: bool = False
    """The texts above are shortened; the journal has the whole ones."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    error: str = ""


PROBES: Dirty = frozenset(("tries",))


def server_of(state: "State", name: str) -> Server:
    """Return the server of that name; add it if it is missing."""
    server = state.servers.get(name)
    if server is None:
        server = state.servers[name] = Server(name=name, url="")
    return server


@lru_cache(maxsize=256)
def server_changed(name: str) -> Dirty:
    """Return the keys that stand for a change of one server."""
    return frozenset((f"server:{name}", "servers"))


def _of_server(change: Callable[["State", Server, Any], None]) -> Handler:
    """Return a handler that changes the server of its event."""

    def handle(state: "State", event: Any) -> Dirty:
        change(state, server_of(state, event.server), event)
        return server_changed(event.server)

    return handle


def _engine(state: "State", server: Server, event: events.EngineChanged) -> None:
    if _started_by_another(server, event):
        server.foreign_start = event.at
    starts = _starts_run(server, event)
    note_engine(state, server, event, starts=starts)
    server.engine_run += starts
    if not server.spans or server.state != event.state:
        server.since = event.at
        _span(server, event)
    elif event.state == "ROLLING" and event.step and event.step != server.spans[-1].step:
        _step_on(server, event)
    server.state = event.state
    server.raw = event.raw
    server.detail = event.detail
    server.url = event.url or server.url
    if event.state in ("OFFLINE", "BOOTING"):
        server.pool = server.slots = None  # these counters belong to the previous run
        server.step = event.step or server.step  # an engine that goes down reports 0
    else:
        server.step = event.step
    server.lost = ""
    server.seen_at = None
    if event.step and event.state == "ROLLING":
        begin_step(server, event.step)


def _started_by_another(server: Server, event: events.EngineChanged) -> bool:
    """Return whether the engine runs without having been started by a command of this proxy."""
    if event.state in ("OFFLINE", "UNKNOWN"):
        return False
    if not server.spans:  # the first reading of this server
        return server.job is None
    work = server.work
    ordered = work is not None and (not work.over or work.at >= server.since)
    return server.state == "OFFLINE" and not ordered


def _starts_run(server: Server, event: events.EngineChanged) -> bool:
    """Return whether the engine was started since its last reading."""
    if event.state in ("OFFLINE", "UNKNOWN") or server.state == event.state == "BOOTING":
        return False
    if event.state == "BOOTING" or server.state == "OFFLINE":
        return True
    last = server.steps[-1] if server.steps else None
    if last is None or last.engine_run != server.engine_run or event.state != "ROLLING":
        return False
    return 0 < (event.step or 0) < last.step


def _span(server: Server, event: events.EngineChanged) -> None:
    server.spans.append(Span(state=event.state, since=event.at, step=event.step))
    del server.spans[:-SPAN_CAP]


def _step_on(server: Server, event: events.EngineChanged) -> None:
    """Record a new step within one state: its number came late, or the sync was not observed."""
    *before, span = server.spans
    if not span.step or any(line.state == "ROLLING" and line.step == span.step for line in before):
        span.step = event.step
    else:
        _span(server, event)


def _engine_lost(state: "State", server: Server, event: events.EngineLost) -> None:
    server.lost = event.error
    server.seen_at = event.seen_at or None
    note_seen(state, server, event.seen_at)


def _pool(state: "State", server: Server, event: events.PoolChanged) -> None:
    if event.model and (server.pool is None or server.pool.model != event.model):
        note_model(state, server, event.model)
    server.pool = event


def _update(state: "State", server: Server, event: events.UpdateDone) -> None:
    stats = step_stats(server, event.step)
    stats.update, stats.update_source = event.stats, event.source
    stats.run = event.run or stats.run
    note_update(state, server, event.step, event.at)


def _checkpoints(state: "State", server: Server, event: events.CheckpointsListed) -> None:
    server.checkpoints = event.checkpoints if event.offered else None
    server.checkpoints_more = event.more


def _slots(state: "State", server: Server, event: events.SlotsSeen) -> None:
    server.slots = event


def _sent(state: "State", server: Server, event: events.JobSent) -> None:
    server.job = event
    server.foreign_start = 0.0


def _work(state: "State", server: Server, event: events.WorkChanged) -> None:
    server.work = event


def fail_operations(state: "State", at: float) -> None:
    """Mark operations that the previous proxy did not finish as failed at time `at`."""
    for server in state.servers.values():
        if server.work is not None and not server.work.over:
            server.work = replace(
                server.work,
                phase="failed",
                at=at,
                said="the proxy ended meanwhile: look at the engine's state",
                steps=tuple(
                    replace(step, phase="failed") if step.phase == "doing" else step
                    for step in server.work.steps
                ),
            )


def _asked(state: "State", event: events.TryAsked) -> Dirty:
    state.tries.append(record_of(Probe, event, prompt=event.prompt[:TEXT_CAP]))
    del state.tries[:-PROBE_CAP]
    return PROBES


def _answered(state: "State", event: events.TryAnswered) -> Dirty:
    for attempt in reversed(state.tries):
        if attempt.try_id == event.try_id:
            attempt.over = True
            attempt.text = event.text[:TEXT_CAP]
            attempt.reasoning = event.reasoning[:TEXT_CAP]
            attempt.tool_calls = event.tool_calls[:TEXT_CAP]
            attempt.cut = max(map(len, (event.text, event.reasoning, event.tool_calls))) > TEXT_CAP
            attempt.finish_reason = event.finish_reason
            attempt.tokens = event.tokens
            attempt.seconds = event.seconds
            if event.step is not None:
                attempt.step, attempt.run = event.step, event.run
            attempt.error = event.error
            return PROBES
    return NOTHING


def fail_probes(state: "State") -> Dirty:
    """Mark probes that the previous proxy did not answer as failed."""
    lost = [attempt for attempt in state.tries if not attempt.over]
    for attempt in lost:
        attempt.over, attempt.error = True, "the proxy ended before the answer came"
    return PROBES if lost else NOTHING


def step_stats(server: Server, step: int) -> StepStats:
    """Return the record of `step`; insert it in order if it is missing."""
    place = len(server.steps)
    while place and server.steps[place - 1].step >= step:
        place -= 1
        if server.steps[place].step == step:
            return server.steps[place]
    stats = StepStats(step=step, engine_run=server.engine_run, run=server.run_number)
    server.steps.insert(place, stats)
    del server.steps[:-STEP_CAP]
    return stats


def begin_step(server: Server, step: int) -> None:
    """Record that the engine collects samples for `step`.

    Drop the records of earlier engine runs from `step` on: their weights, or the samples of a
    batch that was not trained, are gone.
    """
    server.steps = [
        stats
        for stats in server.steps
        if stats.step < step or stats.engine_run == server.engine_run
    ]
    step_stats(server, step)


def automatic_rewards(group: "Group") -> dict[int, float]:
    """Return the automatic reward of each candidate that was sent, by its index.

    In a group rated by hand they are the rewards that were not sent. In an automatic group whose
    scores are not in the journal they are the rewards that were sent.
    """
    human = group.source == "human"
    rewards: dict[int, float] = {}
    for candidate in group.candidates:
        if candidate.reward is not None:
            value = (
                candidate.auto_reward
                if human or candidate.auto_reward is not None
                else candidate.reward
            )
            if value is not None:
                rewards[candidate.index] = value
    return rewards


def hand_score(group: "Group") -> float | None:
    """Return the human reward of the answer that the automatic rewards put first.

    It is 1 if a vote named that answer, 0 if it named another, and the answer's own score where
    the rater gave scores; the mean of them if several answers share the highest automatic reward.
    None if no person rated the group or it has no automatic reward.
    """
    if group.source != "human":
        return None
    winners = top(automatic_rewards(group))
    if not winners:
        return None
    rewards = {candidate.index: candidate.reward or 0.0 for candidate in group.candidates}
    return sum(rewards[index] for index in winners) / len(winners)


def count_group(stats: StepStats, group: "Group") -> None:
    """Add one sealed group to the running figures of its step.

    Human rewards have a scale of their own (the mean of one best of four is always 0.25), so the
    automatic rewards of all groups are counted separately from the rewards that are sent.
    """
    stats.groups += 1
    stats.dead += bool(group.dead)
    for candidate in group.candidates:
        if (reward := candidate.reward) is not None:
            stats.rewards += 1
            stats.mean += (reward - stats.mean) / stats.rewards
            stats.square += (reward * reward - stats.square) / stats.rewards
    for reward in automatic_rewards(group).values():
        stats.auto += 1
        stats.auto_mean += (reward - stats.auto_mean) / stats.auto
        stats.auto_square += (reward * reward - stats.auto_square) / stats.auto
    if group.source == "human":
        stats.by_hand += 1
        if (score := hand_score(group)) is not None:
            stats.hand += 1
            stats.hand_mean += (score - stats.hand_mean) / stats.hand


def count_late_score(server: Server, step: int, engine_run: int, score: float, sign: int) -> None:
    """Count a late vote for the share of wins of its step, if the step is still recorded.

    Args:
        server: Server of the group.
        step: Global step of the group.
        engine_run: `Server.engine_run` when it was claimed.
        score: As from `hand_score`.
        sign: 1 counts it, -1 takes it back.
    """
    stats = next((known for known in reversed(server.steps) if known.step == step), None)
    if stats is not None and stats.engine_run == engine_run:
        total = stats.hand_mean * stats.hand + sign * score
        stats.hand = max(0, stats.hand + sign)
        stats.hand_mean = total / stats.hand if stats.hand else 0.0


def _identified(state: "State", server: Server, event: events.TrainingRunIdentified) -> None:
    run = record_of(TrainingRun, event, engine_run=server.engine_run)
    if server.runs and server.runs[-1].number == event.number:
        server.runs[-1] = run
    else:
        server.runs.append(run)
        del server.runs[:-RUN_CAP]
    note_weights(state, server, event.name)
    for step in reversed(server.steps):  # those that began before it was known
        if step.run or step.engine_run != server.engine_run:
            break
        step.run = event.number


SERVER_HANDLERS: Handlers = {
    events.EngineChanged: _of_server(_engine),
    events.EngineLost: _of_server(_engine_lost),
    events.PoolChanged: _of_server(_pool),
    events.UpdateDone: _of_server(_update),
    events.CheckpointsListed: _of_server(_checkpoints),
    events.SlotsSeen: _of_server(_slots),
    events.JobSent: _of_server(_sent),
    events.WorkChanged: _of_server(_work),
    events.TryAsked: _asked,
    events.TryAnswered: _answered,
    events.TrainingRunIdentified: _of_server(_identified),
}
