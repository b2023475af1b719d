"""Events that the bus publishes, and the snapshots that it writes meanwhile."""

from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from core.bus import Bus
from core.events import AlertRaised, Event, GroupMarked
from core.journal.file import JournalError
from core.journal.writer import Journal
from core.state import State
from core.state.common import Dirty
from core.state.encoder import StateEncoder
from tests.support.sample import group_events


def test_a_snapshot_encoded_ahead_equals_the_state(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run")
    sizes: list[int] = []
    ahead: list[int] = []

    def compare(state: State, parts: tuple[bytes, ...]) -> None:
        assert b"".join(parts) == msgspec.json.encode(state)
        sizes.append(len(state.groups))

    def encode(self: StateEncoder, state: State) -> tuple[bytes, ...]:
        ahead.append(len(self._encoded))
        return plain(self, state)

    plain = StateEncoder.encode
    compare(bus.state, StateEncoder().encode(bus.state))  # no group
    bus.publish(AlertRaised(key="hostile", cause='"groups":<groups>', groups=("g0001",)))
    with (
        patch("core.bus.SNAPSHOT_EVERY", 40),
        patch("core.bus.GROUP_CAP", 30),
        patch("core.state.GROUP_CAP", 30),
        patch.object(journal, "append_snapshot", compare),
        patch.object(StateEncoder, "encode", encode),
    ):
        for number in range(60):
            for event in group_events(number):
                bus.publish(event)
            for closed in list(bus.state.groups)[::5]:  # they change after they were encoded
                bus.publish(GroupMarked(group_id=closed, marked=bool(number % 2)))
    assert len(sizes) > 10
    assert max(ahead) > 10  # groups encoded before the snapshot was due
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
