"""Handlers of the events of a swarm server: engine, pool, steps, clients, jobs, probes."""

import msgspec

from core.events.server import (
    CheckpointsListed,
    EngineChanged,
    EngineLost,
    JobSent,
    PoolChanged,
    SlotsSeen,
    TryAnswered,
    TryAsked,
    UpdateDone,
    WorkChanged,
)
from core.reducer.common import NOTHING, Dirty, Handlers, record_of, server_changed, server_of
from core.reducer.runs import note_engine, note_model, note_seen, note_update
from core.scoring.agreement import top
from core.state import (
    PROBE_CAP,
    SPAN_CAP,
    STEP_CAP,
    TEXT_CAP,
    Group,
    Operation,
    Probe,
    Server,
    Span,
    State,
    StepStats,
)

PROBES: Dirty = frozenset(("tries",))


def _engine(state: State, event: EngineChanged) -> Dirty:
    server = server_of(state, event.server)
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
    return server_changed(event.server)


def _started_by_another(server: Server, event: EngineChanged) -> bool:
    """Return whether the engine runs without having been started by a command of this proxy."""
    if event.state in ("OFFLINE", "UNKNOWN"):
        return False
    if not server.spans:  # the first reading of this server
        return server.job is None
    work = server.work
    ordered = work is not None and (not work.over or work.ended >= server.since)
    return server.state == "OFFLINE" and not ordered


def _starts_run(server: Server, event: EngineChanged) -> bool:
    """Return whether the engine was started since its last reading."""
    if event.state in ("OFFLINE", "UNKNOWN") or server.state == event.state == "BOOTING":
        return False
    if event.state == "BOOTING" or server.state == "OFFLINE":
        return True
    last = server.steps[-1] if server.steps else None
    if last is None or last.engine_run != server.engine_run or event.state != "ROLLING":
        return False
    return 0 < (event.step or 0) < last.step


def _span(server: Server, event: EngineChanged) -> None:
    server.spans.append(Span(state=event.state, since=event.at, step=event.step))
    del server.spans[:-SPAN_CAP]


def _step_on(server: Server, event: EngineChanged) -> None:
    """Record a new step within one state: its number came late, or the sync was not observed."""
    *before, span = server.spans
    if not span.step or any(one.state == "ROLLING" and one.step == span.step for one in before):
        span.step = event.step
    else:
        _span(server, event)


def _engine_lost(state: State, event: EngineLost) -> Dirty:
    server = server_of(state, event.server)
    server.lost = event.error
    server.seen_at = event.seen_at or None
    note_seen(state, server, event.seen_at)
    return server_changed(event.server)


def _pool(state: State, event: PoolChanged) -> Dirty:
    server = server_of(state, event.server)
    if event.model and (server.pool is None or server.pool.model != event.model):
        note_model(state, server, event.model)
    server.pool = event
    return server_changed(event.server)


def _update(state: State, event: UpdateDone) -> Dirty:
    server = server_of(state, event.server)
    stats = step_stats(server, event.step)
    stats.update, stats.update_source = event.stats, event.source
    stats.run = event.run or stats.run
    note_update(state, server, event.step, event.at)
    return server_changed(event.server)


def _checkpoints(state: State, event: CheckpointsListed) -> Dirty:
    server = server_of(state, event.server)
    server.checkpoints = event.checkpoints if event.offered else None
    server.checkpoints_more = event.more
    return server_changed(event.server)


def _slots(state: State, event: SlotsSeen) -> Dirty:
    server_of(state, event.server).slots = event
    return server_changed(event.server)


def _sent(state: State, event: JobSent) -> Dirty:
    server = server_of(state, event.server)
    server.job = event
    server.foreign_start = 0.0
    return server_changed(event.server)


def _work(state: State, event: WorkChanged) -> Dirty:
    ended = 0.0 if event.phase == "doing" else event.at
    server_of(state, event.server).work = record_of(Operation, event, title=event.work, ended=ended)
    return server_changed(event.server)


def fail_operations(state: State, at: float) -> None:
    """Mark operations that the previous proxy did not finish as failed at time `at`."""
    for server in state.servers.values():
        work = server.work
        if work is None or work.over:
            continue
        work.phase = "failed"
        work.ended = at
        work.said = "the proxy ended meanwhile: look at the engine's state"
        work.steps = tuple(
            msgspec.structs.replace(one, phase="failed") if one.phase == "doing" else one
            for one in work.steps
        )


def _asked(state: State, event: TryAsked) -> Dirty:
    state.tries.append(record_of(Probe, event, prompt=event.prompt[:TEXT_CAP]))
    del state.tries[:-PROBE_CAP]
    return PROBES


def _answered(state: State, event: TryAnswered) -> Dirty:
    for one in reversed(state.tries):
        if one.try_id == event.try_id:
            one.over = True
            one.text = event.text[:TEXT_CAP]
            one.reasoning = event.reasoning[:TEXT_CAP]
            one.tool_calls = event.tool_calls[:TEXT_CAP]
            one.cut = max(map(len, (event.text, event.reasoning, event.tool_calls))) > TEXT_CAP
            one.finish_reason = event.finish_reason
            one.tokens = event.tokens
            one.seconds = event.seconds
            if event.step is not None:
                one.step, one.run = event.step, event.run
            one.error = event.error
            return PROBES
    return NOTHING


def fail_probes(state: State) -> Dirty:
    """Mark probes that the previous proxy did not answer as failed."""
    lost = [one for one in state.tries if not one.over]
    for one in lost:
        one.over, one.error = True, "the proxy ended before the answer came"
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
        one for one in server.steps if one.step < step or one.engine_run == server.engine_run
    ]
    step_stats(server, step)


def automatic_rewards(group: Group) -> dict[int, float]:
    """Return the automatic reward of each candidate that was sent, by its index.

    In a group rated by hand they are the rewards that were not sent. In an automatic group whose
    scores are not in the journal they are the rewards that were sent.
    """
    human = group.source == "human"
    rewards: dict[int, float] = {}
    for one in group.candidates:
        if one.reward is not None:
            value = one.auto_reward if human or one.auto_reward is not None else one.reward
            if value is not None:
                rewards[one.index] = value
    return rewards


def hand_score(group: Group) -> float | None:
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
    rewards = {one.index: one.reward or 0.0 for one in group.candidates}
    return sum(rewards[index] for index in winners) / len(winners)


def count_group(stats: StepStats, group: Group) -> None:
    """Add one sealed group to the running figures of its step.

    Human rewards have a scale of their own (the mean of one best of four is always 0.25), so the
    automatic rewards of all groups are counted separately from the rewards that are sent.
    """
    stats.groups += 1
    stats.dead += bool(group.dead)
    for one in group.candidates:
        if (reward := one.reward) is not None:
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


SERVER_HANDLERS: Handlers = {
    EngineChanged: _engine,
    EngineLost: _engine_lost,
    PoolChanged: _pool,
    UpdateDone: _update,
    CheckpointsListed: _checkpoints,
    SlotsSeen: _slots,
    JobSent: _sent,
    WorkChanged: _work,
    TryAsked: _asked,
    TryAnswered: _answered,
}
