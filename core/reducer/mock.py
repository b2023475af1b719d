"""How each event of the mock user changes what is known of it."""

from collections.abc import Callable
from typing import Any

from core.events import (
    Event,
    MockCounted,
    MockFinished,
    MockPaused,
    MockResumed,
    MockRowDone,
    MockRowSkipped,
    MockStarted,
    MockStopping,
)
from core.state import ROW_CAP, TEXT_CAP, Mock, MockRow, State

_DIRTY = frozenset(("mock",))
_PROBLEM_CAP = 50


def _started(state: State, event: MockStarted) -> frozenset[str]:
    state.mock = Mock(
        mock_id=event.mock_id,
        dataset=event.dataset,
        target=event.target,
        total=event.total,
        concurrency=event.concurrency,
        pace=event.pace,
        already=event.done,
        skipped=event.skipped,
        rate=event.rate,
        passes=event.passes,
        seed=event.seed,
        split=event.split,
        held_out=event.held_out,
        columns=event.columns,
        lost=event.lost,
        started_at=event.at,
    )
    return _DIRTY


def _current(state: State, mock_id: str) -> Mock | None:
    return state.mock if state.mock is not None and state.mock.mock_id == mock_id else None


def _phase(phase: str) -> Callable[[State, Any], frozenset[str]]:
    def change(state: State, event: MockPaused | MockResumed | MockStopping) -> frozenset[str]:
        mock = _current(state, event.mock_id)
        if mock is not None and mock.ended_at is None:
            mock.phase = phase
        return _DIRTY

    return change


def _counted(state: State, event: MockCounted) -> frozenset[str]:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.total = event.total
        mock.skipped = max(mock.skipped, event.skipped)
    return _DIRTY


def _row(state: State, event: MockRowDone) -> frozenset[str]:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.done += 1
        mock.failed += not event.ok
        mock.rows.append(
            MockRow(
                row_id=event.row_id,
                query=event.query[:TEXT_CAP],
                ok=event.ok,
                seconds=event.seconds,
                error=event.error,
                at=event.at,
                group_id=event.group_id,
                turns=event.turns,
            )
        )
        del mock.rows[:-ROW_CAP]
    return _DIRTY


def _skipped(state: State, event: MockRowSkipped) -> frozenset[str]:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.skipped += 1
        mock.problems.append(f"{event.place} {event.line}: {event.cause}")
        del mock.problems[:-_PROBLEM_CAP]
    return _DIRTY


def _finished(state: State, event: MockFinished) -> frozenset[str]:
    mock = _current(state, event.mock_id)
    if mock is not None:
        mock.phase = event.how
        mock.cause = event.cause
        mock.ended_at = event.at
    return _DIRTY


MOCK_HANDLERS: dict[type[Event], Callable[[State, Any], frozenset[str]]] = {
    MockStarted: _started,
    MockCounted: _counted,
    MockPaused: _phase("paused"),
    MockResumed: _phase("running"),
    MockStopping: _phase("stopping"),
    MockRowDone: _row,
    MockRowSkipped: _skipped,
    MockFinished: _finished,
}
