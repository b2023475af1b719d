"""Handlers of the events of the mock user."""

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
from core.reducer.common import Dirty, Handler, Handlers, record_of
from core.state import ROW_CAP, TEXT_CAP, Mock, MockRow, State

MOCK: Dirty = frozenset(("mock",))
_PROBLEM_CAP = 50


def _started(state: State, event: MockStarted) -> Dirty:
    state.mock = record_of(Mock, event, done=0, already=event.done, started_at=event.at)
    return MOCK


def _current(state: State, mock_id: str) -> Mock | None:
    return state.mock if state.mock is not None and state.mock.mock_id == mock_id else None


def _phase(phase: str) -> Handler:
    def change(state: State, event: MockPaused | MockResumed | MockStopping) -> Dirty:
        mock = _current(state, event.mock_id)
        if mock is not None and mock.ended_at is None:
            mock.phase = phase
        return MOCK

    return change


def _counted(state: State, event: MockCounted) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.total = event.total
        mock.skipped = max(mock.skipped, event.skipped)
    return MOCK


def _row(state: State, event: MockRowDone) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.done += 1
        mock.waiting = ""
        mock.failed += not event.ok
        mock.rows.append(record_of(MockRow, event, query=event.query[:TEXT_CAP]))
        del mock.rows[:-ROW_CAP]
    return MOCK


def _retried(state: State, event: MockRetried) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.retries = event.retries
        mock.waiting = event.waiting
    return MOCK


def _skipped(state: State, event: MockRowSkipped) -> Dirty:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.skipped += 1
        mock.problems.append(f"{event.place} {event.line}: {event.cause}")
        del mock.problems[:-_PROBLEM_CAP]
    return MOCK


def _finished(state: State, event: MockFinished) -> Dirty:
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
