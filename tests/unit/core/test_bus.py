"""Events that the bus publishes, and the snapshots that it writes meanwhile."""

from pathlib import Path
from unittest.mock import patch

import pytest

from core.bus import Bus
from core.events import AlertRaised, Event
from core.journal.file import JournalError
from core.journal.writer import Journal
from core.state.common import Dirty
from tests.support.sample import group_events


def test_a_snapshot_is_due_after_so_many_events(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run")
    stored: list[int] = []
    with (
        patch("core.bus.SNAPSHOT_EVERY", 40),
        patch.object(journal, "append_snapshot", lambda state: stored.append(state.seq)),
    ):
        for number in range(12):
            for event in group_events(number):
                bus.publish(event)
    assert stored == list(range(40, bus.state.seq + 1, 40))
    journal.close()


def test_a_checked_event_is_published_even_if_the_journal_cannot_be_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run1")
    assert bus.publish_checked(AlertRaised(key="a", cause="")) == 1
    journal.error = "the disk is full"
    with pytest.raises(JournalError, match="the disk is full"):
        bus.publish_checked(AlertRaised(key="b", cause=""))
    assert list(bus.state.alerts) == ["a", "b"]
    journal.close()


def test_a_listener_that_raises_affects_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run")
    received: list[int] = []

    def broken(event: Event, dirty: Dirty) -> None:
        raise ZeroDivisionError

    bus.listen(broken)
    bus.listen(lambda event, dirty: received.append(event.seq))
    assert [bus.publish(AlertRaised(key=key, cause="")) for key in "ab"] == [1, 2]
    assert received == [1, 2]
    assert caplog.text.count("a listener of AlertRaised failed") == 2
    journal.close()
