"""What works on engines make of the state."""

from collections.abc import Callable
from typing import Any

import msgspec

from core.events.base import Event
from core.events.jobs import JobSent, WorkChanged
from core.state import Server, State
from core.state.jobs import SentJob, Work

Dirty = frozenset[str]


def _sent(state: State, event: JobSent) -> Dirty:
    server = _server(state, event.server)
    server.job = SentJob(yaml=event.yaml, at=event.at, how=event.how)
    server.foreign_start = 0.0
    return _dirty(event.server)


def _work(state: State, event: WorkChanged) -> Dirty:
    _server(state, event.server).work = Work(
        title=event.work,
        steps=event.steps,
        phase=event.phase,
        began=event.began,
        ended=0.0 if event.phase == "doing" else event.at,
        said=event.said,
    )
    return _dirty(event.server)


def lose_works(state: State, at: float) -> None:
    """End what the proxy before left half done; it ended `at` at the latest."""
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


def _server(state: State, name: str) -> Server:
    server = state.servers.get(name)
    if server is None:
        server = state.servers[name] = Server(name=name, url="")
    return server


def _dirty(name: str) -> Dirty:
    return frozenset((f"server:{name}", "servers"))


WORK_HANDLERS: dict[type[Event], Callable[[State, Any], Dirty]] = {
    JobSent: _sent,
    WorkChanged: _work,
}
