"""Recorded runs replay to the views that were stored with them; see `tests.support.recorded`."""

from typing import Any

import pytest

from core.events import EVENT_KINDS
from core.state import State, reduce
from tests.support.recorded.views import (
    differences,
    json_view,
    read_lines,
    recorded_events,
    recorded_runs,
    views,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", recorded_runs())
def test_a_recorded_run_replays_to_its_views(name: str) -> None:
    stored, events = read_lines(name, "views"), recorded_events(name)
    for record, seq, old, new in differences(stored, views(events)):
        assert new == old, f"{record} after event {seq}"
    whole: dict[str, Any] = {}
    for view in stored:
        gone = view["gone"]
        whole = {key: old for key, old in whole.items() if key not in gone} | view["changed"]
    state = State()
    for recorded in events:
        if recorded.event is not None:
            reduce(state, recorded.event)
    assert json_view(state) == whole


def test_every_kind_of_event_that_the_program_publishes_is_recorded() -> None:
    recorded = {
        line.event.kind
        for name in recorded_runs()
        for line in recorded_events(name)
        if line.event is not None
    }
    assert {str(kind.__struct_config__.tag) for kind in EVENT_KINDS} <= recorded
