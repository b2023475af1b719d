"""Handlers of the events of the proxy, its consoles and its alerts."""

from core.events.proxy import (
    AlertCleared,
    AlertRaised,
    ConsoleAttached,
    ConsoleDetached,
    ProxyStarted,
    ProxyStopped,
    RatingModeChanged,
    RequestRefused,
)
from core.reducer.common import Dirty, Handlers, record_of
from core.reducer.progress import end_looks
from core.reducer.rewards import clear_judges, fail_trial
from core.reducer.runs import RUNS, end_removed, note_seen
from core.reducer.server import fail_operations, fail_probes
from core.state import (
    ALERT_CAP,
    ANSWERS_WITHIN,
    STARTS_WITHIN,
    Alert,
    AttachedConsole,
    Rewards,
    Server,
    State,
)


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
    state.attached.clear()
    state.rewards = Rewards(source=event.rewards)
    before = state.servers
    state.servers = {
        name: _same_server(state, name, url, name in event.embedded)
        for name, url in event.servers.items()
    }
    end_removed(state, event, before)
    for server in state.servers.values():
        server.lost = "not asked yet"
        server.seen_at = None
        server.own = server.name in event.embedded
        server.expected_until = event.at + (STARTS_WITHIN if server.own else ANSWERS_WITHIN)
        server.pool = server.slots = None
    fail_operations(state, event.at)
    state.alerts.clear()
    state.dismissed.clear()
    return (
        frozenset(("proxy", "servers", "alerts", "rewards", "totals"))
        | fail_probes(state)
        | clear_judges(state)
        | fail_trial(state)
        | end_looks(state)
    )


def _same_server(state: State, name: str, url: str, embedded: bool) -> Server:
    """Return the record of a server; a blank one if its address now names another server.

    The engine runs of another server get numbers that no group of the one before it has.
    """
    server = state.servers.get(name)
    if server is None or (server.url != url and not embedded):
        of_name = (one.engine_run for one in state.groups.values() if one.server == name)
        return Server(name=name, url=url, engine_run=max(of_name, default=-1) + 1)
    server.url = url
    return server


def _proxy_stopped(state: State, event: ProxyStopped) -> Dirty:
    state.proxy_up = False
    state.consoles = 0
    state.attached.clear()
    for server in state.servers.values():
        if not server.lost:
            note_seen(state, server, event.at)
    return frozenset(("proxy",)) | RUNS


def _attached(state: State, event: ConsoleAttached) -> Dirty:
    state.consoles = event.consoles
    if event.holder:
        console = state.attached.get(event.holder)
        feeds = 1 if console is None else console.feeds + 1
        state.attached[event.holder] = AttachedConsole(rater=event.rater, feeds=feeds)
    return frozenset(("proxy",))


def _detached(state: State, event: ConsoleDetached) -> Dirty:
    state.consoles = event.consoles
    console = state.attached.get(event.holder)
    if console is None:
        return frozenset(("proxy",))
    console.feeds -= 1
    if console.feeds > 0:
        return frozenset(("proxy",))
    del state.attached[event.holder]
    for group in state.groups.values():
        if group.leases:
            group.leases = [one for one in group.leases if one.holder != event.holder]
    return frozenset(("proxy", "groups"))


def _mode(state: State, event: RatingModeChanged) -> Dirty:
    state.rating_mode = event.mode
    return frozenset(("proxy",))


def _refused(state: State, event: RequestRefused) -> Dirty:
    state.totals.refused += 1
    return frozenset(("totals",))


def _alert(state: State, event: AlertRaised) -> Dirty:
    state.dismissed.pop(event.key, None)
    previous = state.alerts.get(
        event.key
    )  # an alert raised again with other figures keeps its time
    began = event.at if previous is None else previous.at
    state.alerts[event.key] = record_of(Alert, event, at=began, figures_at=event.at)
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


PROXY_HANDLERS: Handlers = {
    ProxyStarted: _proxy_started,
    ProxyStopped: _proxy_stopped,
    ConsoleAttached: _attached,
    ConsoleDetached: _detached,
    RatingModeChanged: _mode,
    RequestRefused: _refused,
    AlertRaised: _alert,
    AlertCleared: _alert_cleared,
}
