"""Alerts, totals and consoles of the proxy, and the handlers of its events."""

from typing import TYPE_CHECKING

import msgspec

from core import events
from core.state.common import Dirty, Handlers
from core.state.progress import end_looks
from core.state.rewards import Rewards, clear_judges, fail_trial
from core.state.runs import RUNS, end_removed, note_seen
from core.state.server import Server, fail_operations, fail_probes

if TYPE_CHECKING:
    from core.state import State

ALERT_CAP = 100
STARTS_WITHIN = 20.0
"""Seconds until the first answer of the home's own engine, which starts together with the proxy."""
ANSWERS_WITHIN = 5.0
"""The same for any other server, which should be running; else its URL may be wrong."""


class Totals(msgspec.Struct, kw_only=True):
    """Counts over the whole journal."""

    groups: int = 0
    done: int = 0
    """Groups that ended in order and are not `lost`."""
    lost: int = 0
    """Groups that ended in order and whose episodes their server discarded before an update."""
    aborted: int = 0
    failed: int = 0
    dead: int = 0
    rated: int = 0
    answered: int = 0
    """Requests that received an answer."""
    refused: int = 0
    """Requests that received an error."""
    joined: int = 0
    """Repeated requests that waited with the first one."""
    replayed: int = 0
    """Repeated requests that received the first one's answer."""
    helpers: int = 0
    """Groups of helper calls."""


class AttachedConsole(msgspec.Struct, kw_only=True):
    """A console that follows the feed now."""

    rater: str = ""
    """Name of its rater, as last sent; empty if unknown."""
    feeds: int = 1
    """Its connections: two for a moment when it connects again."""


def _proxy_started(state: "State", event: events.ProxyStarted) -> Dirty:
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
    state.alerts_since.clear()
    state.dismissed.clear()
    return (
        frozenset(("proxy", "servers", "alerts", "rewards", "totals"))
        | fail_probes(state)
        | clear_judges(state)
        | fail_trial(state)
        | end_looks(state)
    )


def _same_server(state: "State", name: str, url: str, embedded: bool) -> Server:
    """Return the record of a server; a blank one if its address now names another server.

    The engine runs of another server get numbers that no group of the one before it has.
    """
    server = state.servers.get(name)
    if server is None or (server.url != url and not embedded):
        of_name = (group.engine_run for group in state.groups.values() if group.server == name)
        return Server(name=name, url=url, engine_run=max(of_name, default=-1) + 1)
    server.url = url
    return server


def _proxy_stopped(state: "State", event: events.ProxyStopped) -> Dirty:
    state.proxy_up = False
    state.consoles = 0
    state.attached.clear()
    for server in state.servers.values():
        if not server.lost:
            note_seen(state, server, event.at)
    return frozenset(("proxy",)) | RUNS


def _attached(state: "State", event: events.ConsoleAttached) -> Dirty:
    state.consoles = event.consoles
    if event.holder:
        console = state.attached.get(event.holder)
        feeds = 1 if console is None else console.feeds + 1
        state.attached[event.holder] = AttachedConsole(rater=event.rater, feeds=feeds)
    return frozenset(("proxy",))


def _detached(state: "State", event: events.ConsoleDetached) -> Dirty:
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
            group.leases = [lease for lease in group.leases if lease.holder != event.holder]
    return frozenset(("proxy", "groups"))


def _mode(state: "State", event: events.RatingModeChanged) -> Dirty:
    state.rating_mode = event.mode
    return frozenset(("proxy",))


def _refused(state: "State", event: events.RequestRefused) -> Dirty:
    state.totals.refused += 1
    return frozenset(("totals",))


def _alert(state: "State", event: events.AlertRaised) -> Dirty:
    state.dismissed.pop(event.key, None)
    state.alerts[event.key] = event
    state.alerts_since.setdefault(event.key, event.at)
    while len(state.alerts) > ALERT_CAP:
        oldest = next(iter(state.alerts))
        del state.alerts[oldest]
        state.alerts_since.pop(oldest, None)
    return frozenset(("alerts",))


def _alert_cleared(state: "State", event: events.AlertCleared) -> Dirty:
    alert = state.alerts.pop(event.key, None)
    state.alerts_since.pop(event.key, None)
    state.dismissed.pop(event.key, None)
    if event.dismissed and alert is not None:
        state.dismissed[event.key] = alert.level
        while len(state.dismissed) > ALERT_CAP:
            del state.dismissed[next(iter(state.dismissed))]
    return frozenset(("alerts",))


PROXY_HANDLERS: Handlers = {
    events.ProxyStarted: _proxy_started,
    events.ProxyStopped: _proxy_stopped,
    events.ConsoleAttached: _attached,
    events.ConsoleDetached: _detached,
    events.RatingModeChanged: _mode,
    events.RequestRefused: _refused,
    events.AlertRaised: _alert,
    events.AlertCleared: _alert_cleared,
}
