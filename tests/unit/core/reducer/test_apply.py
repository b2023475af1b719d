"""An event on which the reducer fails is skipped, and the log names its kind once."""

import logging
from typing import Any

import pytest

import core.state
from core.events import AlertRaised, GroupEvent, GroupNoted
from core.state import State, apply, reduce
from core.state.common import Dirty, Handlers
from core.state.group import GROUP_HANDLERS
from tests.support.sample import group_events, stamp, state_of


def _fail(*_: object) -> Dirty:
    raise ZeroDivisionError("a faulty handler")


@pytest.fixture(autouse=True)
def _faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.state, "_FAILED", set())
    handlers: Handlers = {**core.state._HANDLERS, AlertRaised: _fail}
    monkeypatch.setattr(core.state, "_HANDLERS", handlers)
    of_groups: dict[type[GroupEvent], Any] = {**GROUP_HANDLERS, GroupNoted: _fail}
    monkeypatch.setattr(core.state, "GROUP_HANDLERS", of_groups)


def test_a_failing_event_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    state = State()
    with caplog.at_level(logging.ERROR):
        for seq in (7, 8):
            assert apply(state, stamp(AlertRaised(key="a", cause="b"), seq)) == frozenset()
            assert state == State(seq=seq)
    (record,) = caplog.records
    assert record.getMessage().startswith("the reducer failed on event 7 (alert_raised)")
    assert record.exc_info is not None


def test_each_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    state = state_of(*group_events(1))
    group, last = next(iter(state.groups)), state.seq
    with caplog.at_level(logging.ERROR):
        for seq in range(last + 1, last + 4):
            assert not apply(state, stamp(GroupNoted(group_id=group, note="n"), seq))
        apply(state, stamp(AlertRaised(key="a", cause="b"), last + 4))
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [
        "group_noted",
        "alert_raised",
    ]
    assert state.seq == last + 4


def test_without_a_failure_it_is_the_reducer() -> None:
    plain, applied = State(), State()
    for seq, event in enumerate(group_events(1), 1):
        assert apply(applied, stamp(event, seq)) == reduce(plain, stamp(event, seq))
    assert applied == plain
    assert applied.groups


def test_reduce_itself_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        reduce(State(), stamp(AlertRaised(key="a", cause="b"), 1))
