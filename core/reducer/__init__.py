"""The one function that turns events into state; the same in proxy, console, replay and tests.

`reduce(state, event)` changes `state` in place and returns the keys of what it touched, so that a
screen repaints only that: "group:ID", "groups", "server:NAME", "servers", "alerts", "mock",
"rewards", "judges", "totals", "proxy".
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from core.events import (
    AlertCleared,
    AlertRaised,
    CheckpointsListed,
    ConsoleAttached,
    ConsoleDetached,
    EngineChanged,
    EngineLost,
    Event,
    GroupEvent,
    GroupOpened,
    PoolChanged,
    ProxyStarted,
    ProxyStopped,
    RatingModeChanged,
    RequestRefused,
    RewardsChanged,
    UpdateDone,
)
from core.reducer.details import LOOK_HANDLERS, lose_tries
from core.reducer.group import GROUP_HANDLERS, open_group
from core.reducer.jobs import WORK_HANDLERS, lose_works
from core.reducer.judge import JUDGE_HANDLERS, forget_judges
from core.reducer.mock import MOCK_HANDLERS
from core.reducer.steps import begin_step, step_stats
from core.reducer.trial import TRIAL_HANDLERS, lose_trial
from core.state import (
    ALERT_CAP,
    ANSWERS_WITHIN,
    SPAN_CAP,
    STARTS_WITHIN,
    Alert,
    Pool,
    RewardFault,
    Rewards,
    Server,
    Span,
    State,
)

Dirty = frozenset[str]
NOTHING: Dirty = frozenset()


def reduce(state: State, event: Event) -> Dirty:
    """Apply one event; unknown groups and servers are ignored, never invented."""
    state.seq = event.seq
    if isinstance(event, GroupEvent):
        if isinstance(event, GroupOpened):
            open_group(state, event)
        elif (group := state.groups.get(event.group_id)) is None:
            return NOTHING
        elif (change := GROUP_HANDLERS.get(type(event))) is not None:
            change(state, group, event)
        return _dirty(event.group_id)
    handler = _HANDLERS.get(type(event))
    return handler(state, event) if handler else NOTHING


@lru_cache(maxsize=256)
def _dirty(group_id: str) -> Dirty:
    return frozenset((f"group:{group_id}", "groups", "totals"))


def _server(state: State, name: str) -> Server:
    server = state.servers.get(name)
    if server is None:
        server = state.servers[name] = Server(name=name, url="")
    return server


def _proxy_started(state: State, event: ProxyStarted) -> Dirty:
    state.run_id = event.run_id
    state.proxy_url = event.url
    state.proxy_pid = event.pid
    state.client_uuid = event.client_uuid
    state.proxy_up = True
    state.started_at = event.at
    state.rating_mode = event.rating_mode
    state.proxy_version = event.version
    state.watch_only = event.watch_only
    state.consoles = 0
    state.rewards = Rewards(source=event.rewards)
    state.servers = {
        name: _same_server(state, name, url, name in event.embedded)
        for name, url in event.servers.items()
    }
    for server in state.servers.values():
        server.lost = "not asked yet"
        server.seen_at = None
        server.own = server.name in event.embedded
        server.expected_until = event.at + (STARTS_WITHIN if server.own else ANSWERS_WITHIN)
        server.pool = server.slots = None
    lose_works(state, event.at)
    state.alerts.clear()
    state.dismissed.clear()
    return (
        frozenset(("proxy", "servers", "alerts", "rewards", "totals"))
        | lose_tries(state)
        | forget_judges(state)
        | lose_trial(state)
    )


def _same_server(state: State, name: str, url: str, embedded: bool) -> Server:
    """What is known of a server; nothing of one whose address is now another's."""
    server = state.servers.get(name)
    if server is None or (server.url != url and not embedded):
        return Server(name=name, url=url)
    server.url = url
    return server


def _proxy_stopped(state: State, event: ProxyStopped) -> Dirty:
    state.proxy_up = False
    state.consoles = 0
    return frozenset(("proxy",))


def _consoles(state: State, event: ConsoleAttached | ConsoleDetached) -> Dirty:
    state.consoles = event.consoles
    return frozenset(("proxy",))


def _mode(state: State, event: RatingModeChanged) -> Dirty:
    state.rating_mode = event.mode
    return frozenset(("proxy",))


def _rewards(state: State, event: RewardsChanged) -> Dirty:
    before = state.rewards
    same = event.version == before.version and before.since
    state.rewards = Rewards(
        source=event.source,
        ok=event.ok,
        version=event.version,
        cause=event.cause,
        traceback=event.traceback,
        file=event.file,
        line=event.line,
        since=before.since if same else (event.at if event.version else 0.0),
        fault=_fault(before.fault, event),
        parts=event.parts,
        waits=event.waits,
    )
    return frozenset(("rewards",))


def _fault(known: RewardFault | None, event: RewardsChanged) -> RewardFault | None:
    """The last fault after `event`; one that comes again as it was keeps its time."""
    if event.ok:
        if known is not None and known.mended_at is None:
            known.mended_at = event.at
        return known
    if event.waits and not event.cause:  # it only gets ready
        return known
    found = RewardFault(
        cause=event.cause,
        traceback=event.traceback,
        file=event.file,
        line=event.line,
        at=event.at,
        judge=event.judge_in_trouble,
        level=event.level,
        fell=event.fell,
    )
    if known is not None and known.mended_at is None and known.cause == found.cause:
        found.at = known.at
    return found


def _refused(state: State, event: RequestRefused) -> Dirty:
    state.totals.refused += 1
    return frozenset(("totals",))


def _alert(state: State, event: AlertRaised) -> Dirty:
    state.dismissed.pop(event.key, None)
    known = state.alerts.get(event.key)  # raised again with other figures it keeps time and place
    state.alerts[event.key] = Alert(
        key=event.key,
        cause=event.cause,
        todo=event.todo,
        level=event.level,
        at=known.at if known is not None else event.at,
        told_at=event.at,
        groups=event.groups,
    )
    while len(state.alerts) > ALERT_CAP:
        del state.alerts[next(iter(state.alerts))]
    return frozenset(("alerts",))


def _alert_cleared(state: State, event: AlertCleared) -> Dirty:
    alert = state.alerts.pop(event.key, None)
    state.dismissed.pop(event.key, None)
    if event.dismissed and alert is not None:
        state.dismissed[event.key] = alert.level
        while len(state.dismissed) > ALERT_CAP:
            del state.dismissed[next(iter(state.dismissed))]
    return frozenset(("alerts",))


def _engine(state: State, event: EngineChanged) -> Dirty:
    server = _server(state, event.server)
    if _started_by_another(server, event):
        server.foreign_start = event.at
    server.engine_run += _starts_run(server, event)
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
        server.pool = server.slots = None  # the counters are those of the run before
        server.step = event.step or server.step  # an engine that goes down says 0
    else:
        server.step = event.step
    server.lost = ""
    server.seen_at = None
    if event.step and event.state == "ROLLING":
        begin_step(server, event.step, event.at)
    return frozenset((f"server:{event.server}", "servers"))


def _started_by_another(server: Server, event: EngineChanged) -> bool:
    """Whether the engine runs, and neither an order nor a job from here started it."""
    if event.state in ("OFFLINE", "UNKNOWN"):
        return False
    if not server.spans:  # it is seen for the first time
        return server.job is None
    work = server.work
    ordered = work is not None and (not work.over or work.ended >= server.since)
    return server.state == "OFFLINE" and not ordered


def _starts_run(server: Server, event: EngineChanged) -> bool:
    """Whether the engine was started since it was seen last."""
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
    """Another step in the same stay: the number came late, or the sync between was not seen."""
    *before, span = server.spans
    if not span.step or any(one.state == "ROLLING" and one.step == span.step for one in before):
        span.step = event.step
    else:
        _span(server, event)


def _engine_lost(state: State, event: EngineLost) -> Dirty:
    server = _server(state, event.server)
    server.lost = event.error
    server.seen_at = event.seen_at or None
    return frozenset((f"server:{event.server}", "servers"))


def _pool(state: State, event: PoolChanged) -> Dirty:
    server = _server(state, event.server)
    server.pool = Pool(
        method=event.method,
        completed_episodes=event.completed_episodes,
        episode_target=event.episode_target,
        completed_tasks=event.completed_tasks,
        task_target=event.task_target,
        non_dummy_tasks=event.non_dummy_tasks,
        repeats=event.repeats,
        running=event.running,
        running_others=event.running_others,
        other_clients=event.other_clients,
        model=event.model,
    )
    return frozenset((f"server:{event.server}", "servers"))


def _update(state: State, event: UpdateDone) -> Dirty:
    server = _server(state, event.server)
    stats = step_stats(server, event.step, event.at)
    stats.update, stats.update_source = event.stats, event.source
    return frozenset((f"server:{event.server}", "servers"))


def _checkpoints(state: State, event: CheckpointsListed) -> Dirty:
    server = _server(state, event.server)
    server.checkpoints = event.checkpoints if event.offered else None
    server.checkpoints_more = event.more
    return frozenset((f"server:{event.server}", "servers"))


_HANDLERS: dict[type[Event], Callable[[State, Any], Dirty]] = {
    ProxyStarted: _proxy_started,
    ProxyStopped: _proxy_stopped,
    ConsoleAttached: _consoles,
    ConsoleDetached: _consoles,
    RatingModeChanged: _mode,
    RewardsChanged: _rewards,
    RequestRefused: _refused,
    AlertRaised: _alert,
    AlertCleared: _alert_cleared,
    EngineChanged: _engine,
    EngineLost: _engine_lost,
    PoolChanged: _pool,
    UpdateDone: _update,
    CheckpointsListed: _checkpoints,
    **MOCK_HANDLERS,
    **LOOK_HANDLERS,
    **WORK_HANDLERS,
    **JUDGE_HANDLERS,
    **TRIAL_HANDLERS,
}
