"""A commit that fails: no caller waits for it, and its events are written later, in order."""

import asyncio
import contextlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import core.journal.storage
import core.journal.writer
from core.bus import Bus
from core.events import GroupClosed, GroupNoted, GroupOpened
from core.journal import file as journal_file
from core.journal.damage import open_journal
from core.journal.file import JournalError
from core.journal.storage import Job, JournalStorage
from core.journal.writer import Journal
from tests.support.stored import replayed

FULL, ROOM = 40, 1_000_000
"""Pages of a file that is soon full, and of one that is not."""


class Small(Journal):
    """A journal on a disk that is nearly full."""

    pages = FULL


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(core.journal.storage, "BUSY", 0.02)
    monkeypatch.setattr(Small, "pages", FULL)
    connect = journal_file.connect

    def small(path: Path, timeout: float, mode: str = "ro") -> sqlite3.Connection:
        db = connect(path, timeout, mode)
        db.execute(f"pragma max_page_count={Small.pages}")
        return db

    monkeypatch.setattr(journal_file, "connect", small)
    monkeypatch.setattr(core.journal.writer, "RETRY", (0.02, 0.05))
    monkeypatch.setattr(core.journal.writer, "POLL", 0.02)
    with contextlib.closing(Small(tmp_path / "j.db")) as journal:
        yield journal


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Another program holds the file."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("begin immediate")
        yield


def opened(name: str, query: str = "q") -> GroupOpened:
    return GroupOpened(group_id=name, request_id="r", task_id="t", n=2, query=query, body={})


def noise(length: int) -> str:
    """A text that cannot be compressed to less than half, and is never the same."""
    return secrets.token_hex(length // 2)


def noted(note: str) -> GroupNoted:
    return GroupNoted(group_id="g0", note=note)


def rows(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


async def fails(journal: Journal, seq: int) -> JournalError:
    async with asyncio.timeout(20):
        with pytest.raises(JournalError) as failed:
            await journal.durable(seq)
    return failed.value


async def whole(journal: Journal, bus: Bus) -> None:
    """The journal writes again, and has each event of the bus once, in order."""
    await until(lambda: not journal.error)
    async with asyncio.timeout(20):
        await journal.durable(bus.state.seq)
    events = journal.events(0, 100_000)
    assert [event.seq for event in events] == list(range(1, bus.state.seq + 1))
    assert replayed(journal) == journal.load_state() == bus.state


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["nothing", "a snapshot", "a fact"])
async def test_a_full_disk_during_a_commit(
    journal: Small, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr(core.journal.writer, "LINGER", 30.0)  # one commit, also on a busy machine
    monkeypatch.setattr(core.journal.writer, "BATCH", 60)  # the held events take two commits
    bus = Bus(journal, "run")
    first = await bus.publish_durable(opened("g0"))
    values: list[float] = []
    journal.on_recovered = values.append
    if beside == "a snapshot":
        journal.append_snapshot(bus.state)
    elif beside == "a fact":
        journal.put_meta("key", "value")
    bus.publish(GroupClosed(group_id="g0", phase="DONE"))
    for number in range(1, 58):  # many rows, of which the first ones fit
        bus.publish(opened(f"g{number}", noise(10_000)))
    failed = await fails(journal, bus.state.seq)
    assert "full" in failed.what
    assert "Free some space" in failed.todo
    assert rows(journal.path, "select max(seq) from rows") == [(first,)]
    assert rows(journal.path, "select group_id, closed_seq from groups") == [("g0", None)]
    assert rows(journal.path, "select count(*) from snapshots") == [(0,)]
    assert journal.meta("key") is None

    for number in range(58, 80):
        await fails(journal, bus.publish(opened(f"g{number}", noise(10_000))))
    bus.publish(noted("small"))
    await fails(journal, first + 1)
    assert not values
    Small.pages = ROOM
    await whole(journal, bus)
    assert len(values) == 1
    assert [event.seq for event in journal.group_events("g0")] == [first, first + 1, bus.state.seq]
    ended = rows(journal.path, "select closed_seq from groups where group_id='g0'")
    assert ended == [(first + 1,)]  # as in a commit that failed at first
    assert rows(journal.path, "select count(*) from snapshots") == [(beside == "a snapshot",)]
    assert journal.meta("key") == ("value" if beside == "a fact" else None)


async def test_a_lock_of_another_program_is_waited_out(journal: Small) -> None:
    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    errors: list[JournalError] = []
    journal.on_error = errors.append
    for number in range(2):
        with held(journal.path):
            for note in "abc":
                failed = await fails(journal, bus.publish(noted(f"{note}{number}")))
                assert "backup" in failed.todo
            seq = bus.state.seq
            bus.publish(GroupClosed(group_id=f"g{number}", phase="DONE"))
            bus.publish(opened(f"g{number + 1}"))
        await whole(journal, bus)
        await journal.durable(seq)
        await bus.publish_durable(noted("after it"))
    assert len(errors) == 2
    assert rows(journal.path, "select group_id from groups where closed_seq is null") == [("g2",)]


@pytest.mark.parametrize(("name", "most"), [("BACKLOG_EVENTS", 20), ("BACKLOG_BYTES", 5_000)])
async def test_the_backlog_is_limited_and_events_beyond_it_are_lost(
    journal: Small, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(core.journal.storage, name, most)
    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    errors: list[JournalError] = []
    journal.on_error = errors.append
    with held(journal.path):
        lost = bus.publish(noted("lost"))
        await fails(journal, lost)
        for number in range(30):
            bus.publish(noted(f"{number}" + "x" * 300))
        await until(lambda: len(errors) == 2)
    assert "31 events in memory are lost" in errors[1].what
    assert "restart" in errors[1].todo
    later = bus.publish(noted("later"))
    await until(lambda: rows(journal.path, "select max(seq) from rows") == [(later,)])
    for seq in (lost, later):
        assert "are lost" in (await fails(journal, seq)).what
    journal.append_snapshot(bus.state)  # it holds what the journal does not
    journal.close()
    assert rows(journal.path, "select count(*) from snapshots") == [(0,)]
    assert len(errors) == 2


@pytest.mark.parametrize("free", [True, False])
async def test_closing_tries_once_more(
    journal: Small, monkeypatch: pytest.MonkeyPatch, free: bool
) -> None:
    monkeypatch.setattr(core.journal.writer, "RETRY", (60.0, 60.0))
    monkeypatch.setattr(core.journal.writer, "POLL", 60.0)
    bus = Bus(journal, "run")
    first = await bus.publish_durable(opened("g0"))
    with held(journal.path):
        publish = bus.publish(noted("kept"))
        await fails(journal, publish)
        last = bus.publish(noted("the last"))
        if not free:
            await asyncio.to_thread(journal.close)
    if free:
        await asyncio.to_thread(journal.close)
        await whole(journal, bus)
    else:
        await fails(journal, publish)
    assert journal.last_seq() == (last if free else first)


async def test_a_commit_that_succeeded_despite_an_error_is_not_repeated(
    journal: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, faults = JournalStorage.commit, ["disk I/O error"]

    def unsure(storage: JournalStorage, jobs: Sequence[Job], written: int) -> int:
        last = real(storage, jobs, written)
        if faults:
            raise sqlite3.OperationalError(faults.pop())
        return last

    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    monkeypatch.setattr(JournalStorage, "commit", unsure)
    monkeypatch.setattr(core.journal.writer, "LINGER", 30.0)
    journal.append_snapshot(bus.state)
    bus.publish(opened("g1"))
    await fails(journal, bus.publish(GroupClosed(group_id="g0", phase="DONE")))
    await whole(journal, bus)
    assert rows(journal.path, "select group_id from groups where closed_seq is null") == [("g1",)]


async def test_a_deleted_or_replaced_file_is_not_written_to(
    journal: Small, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    older = tmp_path / "older.db"
    with contextlib.closing(sqlite3.connect(journal.path)) as db:
        db.execute("vacuum into ?", (str(older),))
    await bus.publish_durable(noted("newer than that"))
    with monkeypatch.context() as patched:
        patched.setattr(JournalStorage, "commit", broken)
        await fails(journal, bus.publish(noted("kept")))
        aside = journal.path.rename(tmp_path / "aside.db")
        await until(lambda: "gone" in journal.error)
    failed = await fails(journal, bus.state.seq)
    assert "Put the file back" in failed.todo
    assert not journal.path.exists()
    shutil.copy(older, journal.path)
    await until(lambda: "ends with event 1" in journal.error)
    assert rows(older, "select max(seq) from rows") == [(1,)]
    os.replace(aside, journal.path)
    await whole(journal, bus)


async def test_an_unwritable_text_does_not_affect_other_events(journal: Small) -> None:
    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    with held(journal.path):
        await fails(journal, bus.publish(noted("before")))
        await fails(journal, bus.publish(noted("\ud800")))
        after = bus.publish(noted("after"))
    await until(lambda: "is lost" in journal.error)
    await fails(journal, after)
    await until(lambda: [event.seq for event in journal.events()] == [1, 2, after])
    later = bus.publish(noted("later"))
    await fails(journal, later)
    journal.close()
    assert journal.last_seq() == later


# --- a start on a full disk ---------------------------------------------------------------------


def no_room() -> sqlite3.OperationalError:
    """SQLite's error when there is no space for its index beside the file."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 19 << 8
    return error


class Disk:
    """Lets a journal be opened in the usual way, or only for reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        connect = journal_file.connect

        def connected(path: Path, timeout: float, mode: str = "ro") -> sqlite3.Connection:
            if self.full and mode == "rw":
                raise no_room()
            return connect(path, timeout, mode)

        monkeypatch.setattr(journal_file, "connect", connected)


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
        assert [event.seq for event in journal.events()] == [1, 2, 3, 4]
        assert replayed(journal) == bus.state
        assert journal.error == ""


def disk_is_tried(journal: Journal) -> None:
    """The writer has the published events and tries again."""
    while journal._jobs:
        pass


def test_another_fault_at_the_start_is_an_error(
    journal_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(journal_file, "connect", refused)
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
