"""The disk under the journal: it is slow, stalls, fails; committed events are kept."""

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core.journal.storage
import core.journal.writer
from core.bus import Bus
from core.events import GroupOpened
from core.journal.file import JournalError
from core.journal.read_only import JournalFile
from core.journal.storage import JournalStorage
from core.journal.writer import Journal


def opened(group_id: str) -> GroupOpened:
    return GroupOpened(
        group_id=group_id, request_id="r", task_id="t", n=2, query=f"q {group_id}", body={"x": 1}
    )


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.journal.writer, "RETRY", 0.01)
    monkeypatch.setattr(core.journal.writer, "RETRY", (0.02, 0.05))
    monkeypatch.setattr(core.journal.writer, "POLL", 0.02)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.journal.storage, "BUSY", 0.02)


class Disk:
    """A disk that syncs while `writable` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writable = threading.Event()
        self.writable.set()
        self.error: OSError | None = None
        self.syncs = self.synced = self.held_up = 0
        monkeypatch.setattr(core.journal.writer, "to_disk", self)

    @property
    def held(self) -> bool:
        """Whether a sync waits."""
        return self.held_up > 0

    def __call__(self, file: int) -> None:
        self.held_up += 1
        assert self.writable.wait(20)
        self.held_up -= 1
        self.syncs += 1
        if self.error is not None:
            raise self.error
        os.fsync(file)
        self.synced += 1


async def test_a_stalled_disk_only_delays_callers_that_wait_for_durability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run1")
    await bus.publish_durable(opened("g0"))
    disk.writable.clear()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(bus.publish_durable(opened("g1")))
        for number in range(2, 5):
            seq = await bus.publish_committed(opened(f"g{number}"))
            assert JournalFile(tmp_path / "j.db").last_seq() >= seq
        assert not waiting.done()
        disk.writable.set()
    journal.close()


class Reports:
    """What a journal reports of itself."""

    def __init__(self, journal: Journal) -> None:
        self.all: list[str] = []
        journal.on_error = lambda error: self.all.append(error.what)
        journal.on_recovered = lambda _: self.all.append("well")

    @property
    def last(self) -> str:
        return self.all[-1] if self.all else ""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        yield journal


async def test_a_failed_fsync_is_reported_and_everything_is_written_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reports, bus = Disk(monkeypatch), Reports(journal), Bus(journal, "run1")
    disk.error = OSError(5, "Input/output error")
    with pytest.raises(JournalError, match=r"to the disk.*Input/output error"):
        await bus.publish_durable(opened("g0"))
    assert "Input/output error" in journal.error
    with pytest.raises(JournalError, match="Input/output error"):  # nothing new is trained on
        await bus.publish_committed(opened("g1"))
    syncs = disk.syncs
    await until(lambda: disk.syncs > syncs + 3)
    assert len(reports.all) == 1
    log = journal.path.with_name("j.db-wal")
    disk.error = None
    await until(lambda: reports.last == "well")
    # Of a log that lacks what the disk dropped, an older part would be laid over the journal.
    assert log.stat().st_size == 0
    assert reports.all[1:] == ["well"]
    await journal.durable(bus.state.seq)
    await bus.publish_durable(opened("g2"))
    assert log.stat().st_size
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        await journal.durable(bus.state.seq + 1)


async def test_a_short_stall_of_the_disk_is_not_reported(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.writer, "SLOW", 600.0)
    disk, reports, bus = Disk(monkeypatch), Reports(journal), Bus(journal, "run1")
    disk.writable.clear()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(bus.publish_durable(opened("g0")))
        await until(lambda: disk.held)
        journal.check_stall()
        assert not journal.error
        disk.writable.set()
    assert waiting.done()
    assert reports.all == []


async def test_a_long_stall_is_reported_and_close_does_not_wait_for_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reports, bus = Disk(monkeypatch), Reports(journal), Bus(journal, "run1")
    monkeypatch.setattr(core.journal.writer, "SLOW", 0.0)
    disk.writable.clear()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(expect_journal_error(bus, "g0"))
        await until(lambda: disk.held)
        journal.check_stall()
        assert "to the disk: it has not answered for" in journal.error
        with pytest.raises(JournalError, match="not answered"):  # nothing new is trained on
            await bus.publish_committed(opened("g1"))
        journal.check_stall()
        await asyncio.sleep(0)
        assert not waiting.done()
        assert len(reports.all) == 1
        monkeypatch.setattr(core.journal.writer, "HOPELESS", 0.0)
        journal.check_stall()
    disk.writable.set()
    await until(lambda: reports.last == "well")
    assert reports.all[1:] == ["well"]
    await journal.durable(bus.state.seq)  # g0 and g1 among them
    journal.check_stall()
    assert len(reports.all) == 2


async def test_a_commit_that_waits_for_the_disk_is_not_waited_for(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, bus = Reports(journal), Bus(journal, "run1")
    monkeypatch.setattr(core.journal.writer, "SLOW", 0.0)
    writable, held, commit = threading.Event(), threading.Event(), JournalStorage.commit

    def waits(*args: Any) -> int:
        held.set()
        assert writable.wait(20)
        return commit(*args)

    await bus.publish_durable(opened("g0"))
    with monkeypatch.context() as stalls:
        stalls.setattr(JournalStorage, "commit", waits)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(expect_journal_error(bus, "g1", committed=True))
            await until(held.is_set)
            journal.check_stall()
        assert "to the disk: it has not answered for" in journal.error
        assert len(reports.all) == 1
        writable.set()
        await until(lambda: reports.last == "well")
    await journal.durable(bus.state.seq)
    assert JournalFile(journal.path).last_seq() == bus.state.seq


async def test_after_a_stall_and_an_error_the_disk_is_healthy_once_everything_is_written(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, reports, bus = Disk(monkeypatch), Reports(journal), Bus(journal, "run1")
    monkeypatch.setattr(core.journal.writer, "SLOW", 0.0)
    disk.writable.clear()
    disk.error = OSError(5, "Input/output error")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(expect_journal_error(bus, "g0"))
        await until(lambda: disk.held)
        journal.check_stall()
        disk.writable.set()
    await until(lambda: "Input/output" in journal.error)
    syncs = disk.syncs
    await until(lambda: disk.syncs > syncs + 1)
    assert "Input/output" in journal.error
    disk.error = None
    await until(lambda: reports.last == "well")
    assert ["not answered" in report for report in reports.all] == [True, False, False]
    assert reports.last == "well"


@pytest.mark.usefixtures("_impatient")
async def test_a_repeated_commit_alone_does_not_clear_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "j.db")
    disk, reports, bus = Disk(monkeypatch), Reports(journal), Bus(journal, "run1")
    disk.error = OSError(5, "Input/output error")
    await expect_journal_error(bus, "g0")
    with contextlib.closing(sqlite3.connect(journal.path)) as other:
        other.execute("begin immediate")
        bus.publish(opened("g1"))
        await until(lambda: "locked" in reports.last)
        # Each rewrite of the log locks the file too, and may last longer.
        monkeypatch.setattr(core.journal.storage, "BUSY", 20.0)
        other.rollback()
    await until(lambda: "Input/output" in reports.last)
    assert "Input/output" in journal.error
    with pytest.raises(JournalError, match="Input/output error"):
        await bus.publish_committed(opened("g2"))
    disk.error = None
    await until(lambda: reports.last == "well")
    assert not journal.error
    await bus.publish_durable(opened("g3"))
    assert reports.all.count("well") == 1
    journal.close()


async def expect_journal_error(bus: Bus, group_id: str, committed: bool = False) -> None:
    """Publish an event; expect that the disk refuses it."""
    publish = bus.publish_committed if committed else bus.publish_durable
    with pytest.raises(JournalError, match="to the disk"):
        await publish(opened(group_id))


async def test_a_journal_behind_a_link_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    (tmp_path / "real").mkdir()
    (tmp_path / "j.db").symlink_to(tmp_path / "real" / "other.db")
    journal = Journal(tmp_path / "j.db")
    await Bus(journal, "run1").publish_durable(opened("g0"))
    assert disk.synced
    journal.close()


async def test_commits_of_an_earlier_process_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    first = Journal(tmp_path / "j.db")
    seq = await Bus(first, "run1").publish_durable(opened("g0"))
    reader = sqlite3.connect(tmp_path / "j.db")  # so that the log outlives the first one
    assert reader.execute("select max(seq) from rows").fetchone() == (seq,)
    first.close()
    synced = disk.synced
    second = Journal(tmp_path / "j.db")
    async with asyncio.timeout(20):
        await second.durable(seq)
    assert disk.synced > synced
    second.close()
    reader.close()
