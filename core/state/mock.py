"""The mock user's newest run, and the handlers of its events."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from core import events
from core.events import Event
from core.state.common import TEXT_CAP, Dirty, Handler, Handlers, record_of

if TYPE_CHECKING:
    from core.state import State

ROW_CAP = 300


class Mock(msgspec.Struct, kw_only=True):
    """The newest run of the mock user."""

    mock_id: str
    dataset: str
    target: str
    total: int
    phase: str = "running"
    """running, paused, stopping, finished, stopped or failed."""
    cause: str = ""
    concurrency: int = 1
    pace: float = 0.0
    done: int = 0
    already: int = 0
    """Rows done by an earlier start."""
    rate: float = 0.0
    """Questions per second in an open loop; 0 in a closed loop."""
    passes: int = 1
    seed: int | None = None
    split: str = ""
    held_out: float = 0.0
    columns: str = ""
    lost: int = 0
    """Rows in flight when an earlier start was killed; included in `already`."""
    failed: int = 0
    retries: int = 0
    """Requests that were sent again because the target was busy; a row that fails in the end counts
    as failed, too."""
    waiting: str = ""
    """Why no answers arrive at the moment; empty if they do."""
    skipped: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    rows: list[events.MockRowDone] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)


MOCK: Dirty = frozenset(("mock",))
_PROBLEM_CAP = 50


def _started(state: "State", event: events.MockStarted) -> Dirty:
    state.mock = record_of(Mock, event, done=0, already=event.done, started_at=event.at)
    return MOCK


def _of_run(change: Callable[[Mock, Any], None]) -> Handler:
    """Return a handler that changes the newest run; an event of an earlier run changes nothing."""

    def handle(state: "State", event: Any) -> Dirty:
        if state.mock is not None and state.mock.mock_id == event.mock_id:
            change(state.mock, event)
        return MOCK

    return handle


def _phase(phase: str) -> Handler:
    def change(mock: Mock, event: Event) -> None:
        if mock.ended_at is None:
            mock.phase = phase

    return _of_run(change)


def _counted(mock: Mock, event: events.MockCounted) -> None:
    mock.total = event.total
    mock.skipped = max(mock.skipped, event.skipped)


def _row(mock: Mock, event: events.MockRowDone) -> None:
    mock.done += 1
    mock.waiting = ""
    mock.failed += not event.ok
    mock.rows.append(replace(event, query=event.query[:TEXT_CAP], answer=""))
    del mock.rows[:-ROW_CAP]


def _retried(mock: Mock, event: events.MockRetried) -> None:
    mock.retries = event.retries
    mock.waiting = event.waiting


def _skipped(mock: Mock, event: events.MockRowSkipped) -> None:
    mock.skipped += 1
    mock.problems.append(f"{event.place} {event.line}: {event.cause}")
    del mock.problems[:-_PROBLEM_CAP]


def _finished(mock: Mock, event: events.MockFinished) -> None:
    mock.phase = event.how
    mock.cause = event.cause
    mock.ended_at = event.at
    mock.waiting = ""


MOCK_HANDLERS: Handlers = {
    events.MockStarted: _started,
    events.MockCounted: _of_run(_counted),
    events.MockPaused: _phase("paused"),
    events.MockResumed: _phase("running"),
    events.MockStopping: _phase("stopping"),
    events.MockRetried: _of_run(_retried),
    events.MockRowDone: _of_run(_row),
    events.MockRowSkipped: _of_run(_skipped),
    events.MockFinished: _of_run(_finished),
}
