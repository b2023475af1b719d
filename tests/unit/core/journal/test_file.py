"""A journal whose file is deleted or replaced while it is open is written again at its path."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core.journal.writer
from core.bus import Bus
from core.events import GroupNoted, GroupOpened
from core.journal import file as journal_file
from core.journal.writer import Journal
from core.runtime.home import Home

ENDS = ("", "-wal", "-shm")


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    monkeypatch.setattr(core.journal.writer, "RETRY", (0.02, 0.05))
    monkeypatch.setattr(core.journal.writer, "POLL", 0.02)
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        yield journal


def opened(name: str) -> GroupOpened:
    return GroupOpened(group_id=name, request_id="r", task_id="t", n=2, query="q", body={})


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


def check_whole(journal: Journal, bus: Bus) -> None:
    """The file at the journal's path has each event once."""
    events = journal.events(0, 1_000)
    assert [event.seq for event in events] == list(range(1, bus.state.seq + 1))
    assert journal.load_state() == bus.state


@pytest.mark.parametrize("deleted", [ENDS, ENDS[:1]])
async def test_a_deleted_file_is_written_again(journal: Journal, deleted: tuple[str, ...]) -> None:
    bus = Bus(journal, "run")
    notices: list[str] = []
    journal.on_notice = notices.append
    journal.put_meta("key", "value")
    await bus.publish_durable(opened("g0"))
    for end in deleted:
        Path(f"{journal.path}{end}").unlink()
    await bus.publish_durable(GroupNoted(group_id="g0", note="after it"))
    assert notices == [
        "the journal was deleted: it is written again from the open file, nothing is missing"
    ]
    check_whole(journal, bus)
    assert journal.meta("key") == "value"
    for number in range(5):
        await bus.publish_durable(opened(f"h{number}"))
    journal.close()
    assert len(notices) == 1
    check_whole(Journal(journal.path), bus)
    assert {one.name for one in journal.path.parent.glob("j.db*")} <= {f"j.db{end}" for end in ENDS}


async def test_a_replacing_file_is_set_aside(journal: Journal, tmp_path: Path) -> None:
    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    older = tmp_path / "older.db"
    with contextlib.closing(sqlite3.connect(journal.path)) as db:
        db.execute("vacuum into ?", (str(older),))
    await bus.publish_durable(GroupNoted(group_id="g0", note="newer than that"))
    notices: list[str] = []
    journal.on_notice = notices.append
    shutil.copy(older, tmp_path / "other.db")
    (tmp_path / "other.db").replace(journal.path)
    await bus.publish_durable(GroupNoted(group_id="g0", note="after it"))
    check_whole(journal, bus)
    (aside,) = tmp_path.glob("j.db.replaced-*")
    assert aside.name in notices[0]
    assert aside.read_bytes() == older.read_bytes()


async def test_a_copy_that_fails_is_tried_again_from_the_open_file(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Path:
        raise sqlite3.OperationalError("database or disk is full")

    bus = Bus(journal, "run")
    await bus.publish_durable(opened("g0"))
    with monkeypatch.context() as patched:
        patched.setattr(journal_file, "copy_of", full)
        for end in ENDS:
            Path(f"{journal.path}{end}").unlink()
        bus.publish(GroupNoted(group_id="g0", note="kept"))
        await until(lambda: "full" in journal.error)
        bus.publish(GroupNoted(group_id="g0", note="kept, too"))
    await until(lambda: not journal.error)
    async with asyncio.timeout(20):
        await journal.durable(bus.state.seq)
    check_whole(journal, bus)


def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    with contextlib.closing(Journal(path)):
        pass
    for end in ENDS:
        Path(f"{path}{end}").touch()
        Path(f"{path}{end}").chmod(0o644)
    with contextlib.closing(Journal(path)):
        modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.glob("j.db*")}
    assert modes == dict.fromkeys(modes, 0o600)
    assert "j.db" in modes


def test_the_name_of_the_proxy_outlasts_the_journal(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    assert home.client_uuid("known by an older journal") == "known by an older journal"
    assert home.client_uuid(None) == home.client_uuid("other") == "known by an older journal"
    assert (home.root / "client_uuid").stat().st_mode & 0o777 == 0o600
    new = Home.open(tmp_path / "new")
    assert len(new.client_uuid(None)) == 36
    assert new.client_uuid(None) == new.client_uuid(None)
