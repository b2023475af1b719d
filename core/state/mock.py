"""The mock user's newest run, and the handlers of its events."""

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from core.events.mock import (
    MockCounted,
    MockFinished,
    MockPaused,
    MockResumed,
    MockRetried,
    MockRowDone,
    MockRowSkipped,
    MockStarted,
    MockStopping,
)
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
    rows: list[MockRowDone] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)


MOCK: Dirty = frozenset(("mock",))
_PROBLEM_CAP = 50


def _started(state: "State", event: MockStarted) -> Dirty:
    state.mock = record_of(Mock, event, done=0, already=event.done, started_at=event.at)
    return MOCK


def _current(state: "State", mock_id: str) -> Mock | None:
    return state.mock if state.mock is not None and state.mock.mock_id == mock_id else None


def _phase(phase: str) -> Handler:
    def change(state: "State", event: MockPaused | MockResumed | MockStopping) -> Dirty:
        mock = _current(state, event.mock_id)
        if mock is not None and mock.ended_at is None:
            mock.phase = phase
        return MOCK

    return change


def _counted(state: "State", event: MockCounted) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.total = event.total
        mock.skipped = max(mock.skipped, event.skipped)
    return MOCK


def _row(state: "State", event: MockRowDone) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.done += 1
        mock.waiting = ""
        mock.failed += not event.ok
        mock.rows.append(replace(event, query=event.query[:TEXT_CAP], answer=""))
        del mock.rows[:-ROW_CAP]
    return MOCK


def _retried(state: "State", event: MockRetried) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.retries = event.retries
        mock.waiting = event.waiting
    return MOCK


def _skipped(state: "State", event: MockRowSkipped) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.skipped += 1
        mock.problems.append(f"{event.place} {event.line}: {event.cause}")
        del mock.problems[:-_PROBLEM_CAP]
    return MOCK


def _finished(state: "State", event: MockFinished) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.phase = event.how
        mock.cause = event.cause
        mock.ended_at = event.at
        mock.waiting = ""
    return MOCK


MOCK_HANDLERS: Handlers = {
    MockStarted: _started,
    MockCounted: _counted,
    MockPaused: _phase("paused"),
    MockResumed: _phase("running"),
    MockStopping: _phase("stopping"),
    MockRetried: _retried,
    MockRowDone: _row,
    MockRowSkipped: _skipped,
    MockFinished: _finished,
}
