"""A commit that fails: all of it is gone, all who wait hear of it, the writer lives on."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core.journal
import core.journal_rows
from core.bus import Bus
from core.events import GroupClosed, GroupNoted, GroupOpened
from core.journal import Journal, JournalError

FULL = 40
"""Pages of a file that is soon full."""


class Small(Journal):
    """A journal on a disk that is nearly full, and whose locks are not waited for."""

    pages = FULL

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=0.05, check_same_thread=False)
        db.execute(f"pragma max_page_count={self.pages}")
        return db


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with contextlib.closing(Small(tmp_path / "j.db")) as journal:
        yield journal


def opened(name: str, query: str = "q") -> GroupOpened:
    return GroupOpened(group_id=name, request_id="r", task_id="t", n=2, query=query, body={})


def rows(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


async def fails(journal: Journal, seq: int) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(JournalError):
            await journal.durable(seq)


@pytest.mark.parametrize("beside", ["nothing", "a snapshot", "a fact"])
async def test_a_full_disk_in_the_midst_of_a_commit(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr(core.journal_rows, "ROW_BYTES", 8_000)
    monkeypatch.setattr(core.journal, "LINGER", 30.0)  # one commit, also on a busy machine
    bus = Bus(journal, "run")
    first = await bus.publish_durable(opened("g0"))
    if beside == "a snapshot":
        journal.append_snapshot(bus.state)
    elif beside == "a fact":
        journal.put_meta("key", "value")
    bus.publish(GroupClosed(group_id="g0", phase="DONE"))
    for number in range(1, 80):  # many rows, of which the first ones fit
        bus.publish(opened(f"g{number}", "q" * 10_000))
    await fails(journal, bus.state.seq)
    assert rows(journal.path, "select max(seq) from events") == [(first,)]
    assert rows(journal.path, "select id, phase from groups") == [("g0", "QUEUED")]
    assert rows(journal.path, "select count(*) from snapshots") == [(0,)]
    assert journal.meta("key") is None

    lost = bus.state.seq
    bus.publish(GroupNoted(group_id="g0", note="small"))
    await fails(journal, bus.state.seq)
    journal.close()  # writes it all the same
    await fails(journal, lost)
    again = Small(journal.path)
    state = again.load_state()
    assert state == again.replayed_state()
    assert (state.seq, state.groups["g0"].note) == (lost + 1, "small")
    assert [one.seq for one in again.group_events("g0")] == [first, lost + 1]
    again.close()


async def test_what_was_lost_does_not_become_durable_by_later_rows(journal: Journal) -> None:
    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    with contextlib.closing(sqlite3.connect(journal.path)) as other:
        other.execute("begin immediate")
        lost = bus.publish(GroupNoted(group_id="g0", note="lost"))
        await fails(journal, lost)
        other.rollback()
    later = bus.publish(GroupNoted(group_id="g0", note="later"))
    async with asyncio.timeout(20):
        while rows(journal.path, "select max(seq) from events") != [(later,)]:
            await asyncio.sleep(0.005)
    for seq in (lost, later):
        await fails(journal, seq)


async def test_text_that_cannot_be_written_does_not_leave_anybody_waiting(journal: Journal) -> None:
    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    await fails(journal, bus.publish(GroupNoted(group_id="g0", note="\ud800")))
    later = bus.publish(GroupNoted(group_id="g0", note="later"))
    await fails(journal, later)
    journal.close()
    assert journal.last_seq() == later
