"""A start on a full disk: the journal is read, events are kept, and written once there is room."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import core.journal.writer
from core.bus import Bus
from core.events import GroupNoted, GroupOpened
from core.journal.start import open_journal
from core.journal.writer import Journal, JournalError


def no_room() -> sqlite3.OperationalError:
    """SQLite's error when there is no space for its index beside the file."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 19 << 8
    return error


class Disk:
    """Lets a journal be opened in the usual way, or only without an index beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        connect = Journal._connect

        def connected(journal: Journal) -> sqlite3.Connection:
            if self.full and not journal.without_index:
                raise no_room()
            return connect(journal)

        monkeypatch.setattr(Journal, "_connect", connected)


@pytest.fixture
def journal_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(core.journal.writer, "RETRY", (0.02, 0.05))
    monkeypatch.setattr(core.journal.writer, "POLL", 0.02)
    path = tmp_path / "journal.db"
    with contextlib.closing(Journal(path)) as journal:
        bus = Bus(journal, "run")
        for name in ("g0", "g1"):
            bus.publish(opened(name))
        journal.put_meta("key", "value")
    return path


def opened(name: str) -> GroupOpened:
    return GroupOpened(group_id=name, request_id="r", task_id="t", n=2, query="q", body={})


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


async def test_a_start_on_a_full_disk(journal_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    result = open_journal(journal_path)
    with contextlib.closing(result.journal) as journal:
        assert "disk I/O error" in journal.error
        assert "Free some space" in journal.failure().todo
        assert (result.state.seq, set(result.state.groups)) == (2, {"g0", "g1"})
        assert journal.meta("key") == "value"
        recovered: list[float] = []
        journal.on_recovered = recovered.append
        bus = Bus(journal, "run2", result.state)
        with pytest.raises(JournalError):
            await bus.publish_committed(GroupNoted(group_id="g0", note="kept"))
        await asyncio.to_thread(disk_is_tried, journal)
        assert journal.last_seq() == 2
        disk.full = False
        await until(lambda: bool(recovered))
        await bus.publish_durable(GroupNoted(group_id="g1", note="written"))
        assert [one.seq for one in journal.events()] == [1, 2, 3, 4]
        assert journal.replayed_state() == bus.state
        assert journal.error == ""


def disk_is_tried(journal: Journal) -> None:
    """The writer has the published events and tries again."""
    while journal._jobs:
        pass


def test_another_fault_at_the_start_is_an_error(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(journal: Journal) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(Journal, "_connect", refused)
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(journal_path)


def test_closing_without_room_ends(journal_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    journal = Journal(journal_path)
    Bus(journal, "run2", journal.load_state()).publish(GroupNoted(group_id="g0", note="lost"))
    journal.close()
    disk.full = False
    assert journal_seq(journal_path) == 2


def journal_seq(path: Path) -> int:
    with contextlib.closing(Journal(path)) as journal:
        return journal.last_seq()
