"""A journal is opened although the reducer fails on one of its events; a failed start leaves
nothing open."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import core.journal.prune
import core.state
from console.export.records import RecordBuilder
from core.bus import Bus
from core.events import AlertRaised, GroupEvent, GroupNoted
from core.journal import damage
from core.journal.damage import open_journal
from core.journal.file import JournalError, mark_of
from core.journal.prune import Pruner, Retention
from core.journal.read_only import JournalFile
from core.journal.reader import JournalReader
from core.journal.writer import Journal
from core.state import State
from core.state.common import Dirty, Handlers
from core.state.group import GROUP_HANDLERS
from tests.support.sample import group_events
from tests.support.stored import replayed


def _fail(*_: object) -> Dirty:
    raise ZeroDivisionError("a faulty handler")


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, State]:
    """A journal with events on which the reducer fails, and the state that the bus had."""
    handlers: Handlers = {**core.state._HANDLERS, AlertRaised: _fail}
    monkeypatch.setattr(core.state, "_HANDLERS", handlers)
    of_groups: dict[type[GroupEvent], Any] = {**GROUP_HANDLERS, GroupNoted: _fail}
    monkeypatch.setattr(core.state, "GROUP_HANDLERS", of_groups)
    path = tmp_path / "journal.db"
    with contextlib.closing(Journal(path)) as journal:
        bus = Bus(journal, "run")
        for number in range(30):
            events = list(group_events(number))
            for event in events[:-1]:
                bus.publish(event)
            bus.publish(AlertRaised(key="a", cause="b"))
            bus.publish(GroupNoted(group_id=f"g{number:04}", note="a note"))
            bus.publish(events[-1])
            asyncio.run(journal.committed(bus.state.seq))
        bus.publish(AlertRaised(key="a", cause="b"))  # the newest event fails too
    return path, bus.state


def test_a_journal_with_faulty_events_is_opened(faulty: tuple[Path, State]) -> None:
    path, state = faulty
    assert not state.alerts
    opened = open_journal(path)
    with contextlib.closing(opened.journal):
        assert opened.state == state == replayed(opened.journal)


def test_every_reader_skips_faulty_events(faulty: tuple[Path, State]) -> None:
    path, state = faulty
    file = JournalFile(path)
    assert file.load_state() == state
    page = file.page(0, 5)
    assert [group.phase for group in page.groups] == ["DONE"] * 5
    builder = RecordBuilder(file.survey().runs)
    built = [builder.build(group) for group in file.closed_groups()]
    assert len([one for one in built if one is not None]) == 30


def test_faulty_events_are_pruned(
    faulty: tuple[Path, State], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.prune, "KEEP_GROUPS", 2)
    monkeypatch.setattr(core.journal.prune, "KEEP_EVENTS", 5)
    path, state = faulty
    with contextlib.closing(Journal(path)) as journal:
        pruner = Pruner(journal, Retention(), rest=0.0)
        assert pruner.prune(Retention(bytes=1)).groups > 10
        assert replayed(journal) == state


@pytest.mark.parametrize("error", [ZeroDivisionError("an unexpected fault"), KeyboardInterrupt()])
def test_a_failed_start_closes_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def load(_: JournalReader, *__: Any) -> State:
        raise error

    monkeypatch.setattr(JournalReader, "load_state", load)
    before = threading.active_count(), len(os.listdir("/dev/fd"))
    with pytest.raises(type(error)):
        open_journal(tmp_path / "journal.db")
    assert (threading.active_count(), len(os.listdir("/dev/fd"))) == before


def test_an_unreadable_mark_is_reported_by_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> str:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(damage, "find_damage", locked)
    mark_of(tmp_path / "journal.db").write_text("damaged")
    before = threading.active_count()
    with pytest.raises(JournalError, match="database is locked"):
        open_journal(tmp_path / "journal.db")
    assert threading.active_count() == before
