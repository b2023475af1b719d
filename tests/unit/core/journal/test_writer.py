"""The journal is the truth: what it keeps, what it gives back, what it refuses."""

import asyncio
import contextlib
import itertools
import json
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import core.journal.writer
from core.bus import QUEUE_CAP, Bus
from core.events import GroupClosed, GroupNoted, GroupOpened, ProxyStarted
from core.journal.file import JournalError
from core.journal.storage import JournalStorage
from core.journal.writer import Journal
from core.state import GROUP_CAP
from tests.support.stored import replayed

pytestmark = pytest.mark.slow


def opened(group_id: str) -> GroupOpened:
    return GroupOpened(
        group_id=group_id, request_id="r", task_id="t", n=2, query=f"q {group_id}", body={"x": 1}
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        yield journal


@pytest.fixture
def bus(journal: Journal) -> Bus:
    return Bus(journal, "run1")


async def test_state_after_reopening_equals_the_state_before(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run1", clock=lambda: 12.5)
    bus.publish(
        ProxyStarted(
            client_uuid="c", pid=1, url="u", version="v", servers={"a": "b"}, rewards="builtin"
        )
    )
    for number in range(GROUP_CAP + 20):
        bus.publish(opened(f"g{number}"))
        bus.publish(GroupClosed(group_id=f"g{number}", phase="DONE"))
    await journal.durable(bus.state.seq)
    journal.close()

    again = Journal(tmp_path / "j.db")
    assert again.load_state() == bus.state == replayed(again)
    assert len(bus.state.groups) == GROUP_CAP
    assert bus.state.totals.done == GROUP_CAP + 20
    again.close()


async def test_a_snapshot_gives_the_same_state_as_all_events(journal: Journal, bus: Bus) -> None:
    bus.publish(opened("g1"))
    journal.append_snapshot(bus.state)
    bus.publish(GroupNoted(group_id="g1", note="later"))
    await journal.durable(bus.state.seq)
    assert journal.load_state() == replayed(journal) == bus.state
    assert bus.state.groups["g1"].note == "later"


async def test_durable_means_another_connection_sees_it(journal: Journal, bus: Bus) -> None:
    seq = await bus.publish_durable(opened("g1"))
    connect = sqlite3.connect(journal.path)
    assert connect.execute("select seq from rows").fetchall() == [(seq,)]
    connect.close()


def test_the_file_is_read_with_the_usual_tools_while_it_is_written(tmp_path: Path) -> None:
    """As the package of the journal shows it."""
    path, text = tmp_path / "j.db", "why? " * 100
    body = {"messages": [{"role": "system", "content": "be brief"}]}
    body["messages"].append({"role": "user", "content": text})
    with contextlib.closing(Journal(path)) as journal:
        bus = Bus(journal, "run1")
        bus.publish(
            GroupOpened(group_id="g1", request_id="r", task_id="t", n=2, query=text, body=body)
        )
        asyncio.run(bus.publish_committed(GroupClosed(group_id="g1", phase="DONE")))
        rows = shell(path, "select json from events where group_id = 'g1'")
        assert [json.loads(row)["kind"] for row in rows] == ["group_opened", "group_closed"]
        opened = json.loads(rows[0])
        assert opened["query"] == text[:200]
        sql = "select parent, sqlar_uncompress(zlib, size) from messages where id = "
        (row,) = shell(path, f"{sql}{opened['last_message']}")
        parent, _, message = row.partition("|")
        assert json.loads(message) == body["messages"][1]
        (row,) = shell(path, f"{sql}{parent}")
        assert json.loads(row.partition("|")[2]) == body["messages"][0]


@pytest.mark.parametrize("server", ["embedded", 'a "named" server', ""])
def test_a_row_gives_back_what_the_first_event_of_its_group_says(
    tmp_path: Path, server: str
) -> None:
    path, at = tmp_path / "j.db", 1_795_370_369.1159794
    note = GroupNoted(group_id="g1", server=server, note="n" * 500)
    published: list[Any] = []
    for run, more in (
        ("run1", [replace(opened("g1"), server=server), note, replace(note, group_id="unknown")]),
        ("run2", [note, GroupClosed(group_id="g1", server="another", phase="DONE")]),
    ):
        with contextlib.closing(Journal(path)) as journal:
            bus = Bus(journal, run, clock=lambda: at)
            bus.listen(lambda event, _: published.append(event))
            for event in more:
                bus.publish(replace(event))
    with contextlib.closing(Journal(path)) as journal:
        assert journal.events() == published
        assert journal.group_events("g1") == [event for event in published if event.seq != 3]
    for row, event in zip(shell(path, "select json from events"), published, strict=True):
        fields = json.loads(row)
        stored = (fields["kind"], fields["seq"], fields["run_id"], fields["group_id"])
        assert stored == (event.kind, event.seq, event.run_id, event.group_id)
        assert fields.get("server", "") == event.server
        assert abs(fields["at"] - at) < 1e-5


def shell(path: Path, sql: str) -> list[str]:
    """Lines that SQLite's shell prints."""
    program = shutil.which("sqlite3")
    if program is None:
        pytest.skip("there is no sqlite3 here")
    done = subprocess.run(
        [program, "-readonly", str(path), sql], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_task_alone_does_not_wait_for_events_to_share_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.writer, "LINGER", 3600.0)
    journal = Journal(tmp_path / "j.db")
    for _ in range(3):
        journal.run(lambda db: None, threading.Event())
    journal.close()


def test_events_without_a_gap_do_not_stop_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit finds the next event waiting."""
    ends, number, real = threading.Event(), itertools.count(1), JournalStorage.commit

    def commit(*args: Any) -> int:
        if not ends.is_set():
            journal.put_meta("key", str(next(number)))
            journal._urgent.set()
        return real(*args)

    monkeypatch.setattr(JournalStorage, "commit", commit)
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        journal.put_meta("key", "0")
        limit = threading.Timer(20, ends.set)  # a task that never runs fails
        limit.start()
        done: list[int] = []
        journal.run(lambda db: done.append(next(number)), ends)
        assert done
        assert not ends.is_set()
        limit.cancel()
        ends.set()


async def test_a_failed_write_is_raised_to_all_waiters_and_persists(
    journal: Journal, bus: Bus
) -> None:
    await bus.publish_durable(opened("g0"))
    lines: list[str] = []
    journal.on_error = lines.append
    breaker = sqlite3.connect(journal.path)
    breaker.execute("drop table rows")
    breaker.commit()
    breaker.close()
    with pytest.raises(JournalError, match="cannot be written"):
        await bus.publish_durable(opened("g1"))
    with pytest.raises(JournalError):
        await bus.publish_durable(opened("g2"))
    assert len(lines) == 1
    assert set(bus.state.groups) == {"g0", "g1", "g2"}


async def test_a_row_that_cannot_be_read_is_left_out(journal: Journal, bus: Bus) -> None:
    await bus.publish_durable(opened("g1"))
    await bus.publish_durable(opened("g2"))
    spoil = sqlite3.connect(journal.path)
    spoil.execute("update rows set kind=0 where seq=1")
    spoil.commit()
    spoil.close()
    state = journal.load_state()
    assert set(state.groups) == {"g2"}
    assert state.seq == 2


def test_a_file_that_is_not_a_journal_is_named_and_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def connected(*args: Any, **more: Any) -> sqlite3.Connection:
        made.append(connect(*args, **more))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", connected)
    path = tmp_path / "j.db"
    path.write_bytes(b"this is not a database, by far not one" * 100)
    with pytest.raises(JournalError) as caught:
        Journal(path)
    assert str(path) in str(caught.value)
    assert len(made) == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("select 1")


def test_a_newer_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    Journal(path).close()
    newer = sqlite3.connect(path)
    newer.execute("pragma user_version=99")
    newer.close()
    with pytest.raises(JournalError, match="version 99"):
        Journal(path)


async def test_a_slow_follower_gets_one_gap(bus: Bus) -> None:
    subscription = bus.subscribe()
    for number in range(QUEUE_CAP + 1):
        bus.publish(opened(f"g{number}"))
    assert subscription.gap
    assert await subscription.next(0.01) == []
    subscription.resume()
    bus.publish(opened("last"))
    result = await subscription.next(1)
    assert [event.group_id for event in result if isinstance(event, GroupOpened)] == ["last"]


async def test_next_wakes_on_an_event(bus: Bus) -> None:
    subscription = bus.subscribe()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(subscription.next(5))
        await asyncio.sleep(0)
        bus.publish(opened("g1"))
    assert len(waiting.result()) == 1
