"""The file of a journal: written again at its path if it is deleted or replaced; one of an older
program is refused and set aside, a newer one is refused."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core.journal.prune
import core.journal.writer
import core.state
from console.export.records import RecordBuilder
from core.bus import Bus
from core.events import AlertRaised, GroupEvent, GroupNoted, GroupOpened
from core.journal import damage
from core.journal import file as journal_file
from core.journal.damage import open_journal
from core.journal.file import SCHEMA, JournalError, OlderJournal, mark_of
from core.journal.prune import Pruner, Retention
from core.journal.read_only import JournalFile
from core.journal.reader import JournalReader
from core.journal.writer import Journal
from core.runtime.home import Home
from core.state import State
from core.state.common import Dirty, Handlers
from core.state.group import GROUP_HANDLERS
from tests.support.sample import group_events
from tests.support.stored import replayed

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
    assert {path.name for path in journal.path.parent.glob("j.db*")} <= {
        f"j.db{end}" for end in ENDS
    }


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
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("j.db*")}
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


# --- journals of other programs ------------------------------------------------------------------


async def write(path: Path, note: str) -> None:
    """Write one event, and the id of a proxy."""
    with contextlib.closing(Journal(path)) as journal:
        journal.put_meta("client_uuid", "the id of the older proxy")
        await Bus(journal, "run").publish_durable(GroupNoted(group_id="g1", note=note))


def set_version(path: Path, schema: int, program: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("update meta set value=? where key='written_by'", (program,))
        db.execute(f"pragma user_version={schema}")
        db.commit()


@pytest.fixture
async def older(home: Home) -> Path:
    await write(home.journal, "a note of a person")
    set_version(home.journal, SCHEMA - 1, "0.1.7")
    return home.journal


@pytest.mark.parametrize("opened", [Journal, JournalFile])
def test_an_older_journal_is_refused_by_name(
    older: Path, opened: type[Journal] | type[JournalFile]
) -> None:
    before = older.read_bytes()
    with pytest.raises(OlderJournal) as caught:
        opened(older)
    text = str(caught.value)
    assert f"of version {SCHEMA - 1}, written by ajet-console 0.1.7" in text
    assert f"reads version {SCHEMA}" in text
    assert f"exports it: `ajet-console export jsonl OUT --journal {older}`" in text
    assert older.read_bytes() == before


def test_a_start_sets_an_older_journal_aside_and_begins_a_new_one(home: Home, older: Path) -> None:
    before = older.read_bytes()
    opened = open_journal(older)
    with contextlib.closing(opened.journal):
        (aside,) = home.root.glob("journal.db.older-*")
        assert aside.read_bytes() == before
        assert opened.state.seq == 0
        assert "written by ajet-console 0.1.7" in opened.notice
        assert f"--journal {aside}`" in opened.notice
    again = open_journal(older)
    again.journal.close()
    assert not again.notice
    assert list(home.root.glob("journal.db.older-*")) == [aside]


def test_the_id_of_the_proxy_outlasts_an_older_journal(home: Home, older: Path) -> None:
    """The server knows episodes by it: those that the older proxy held are found there."""
    opened = open_journal(older)
    opened.journal.close()
    assert home.client_uuid(opened.client_uuid) == "the id of the older proxy"
    assert home.client_uuid() == "the id of the older proxy"


async def test_the_log_of_an_older_journal_stays_with_it(home: Home, tmp_path: Path) -> None:
    await write(home.journal, "the first")
    set_version(home.journal, SCHEMA - 1, "0.1.7")
    with contextlib.closing(sqlite3.connect(home.journal)) as db:  # it was killed
        db.execute("insert into meta values ('in', 'the log')")
        db.commit()
        copies = {
            file.name: file.read_bytes()
            for file in home.root.iterdir()
            if file.name.startswith("journal.db") and not file.name.endswith("-shm")
        }
    assert "journal.db-wal" in copies
    killed = tmp_path / "killed"
    killed.mkdir()
    for name, data in copies.items():
        (killed / name).write_bytes(data)
    open_journal(killed / "journal.db").journal.close()
    (aside,) = (
        file
        for file in killed.glob("journal.db.older-*")
        if not file.name.endswith(("-wal", "-shm"))
    )
    with contextlib.closing(sqlite3.connect(aside)) as db:
        assert db.execute("select value from meta where key='in'").fetchone() == ("the log",)


def test_an_older_journal_that_cannot_be_renamed_stays(
    older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no right to rename")

    monkeypatch.setattr("core.journal.file.set_aside", refuse)
    before = older.read_bytes()
    with pytest.raises(JournalError, match="cannot be renamed: no right"):
        open_journal(older)
    assert older.read_bytes() == before


def test_a_log_that_cannot_be_read_in_its_folder_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **more: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")  # as in a read-only folder

    path = tmp_path / "journal.db"
    Journal(path).close()
    monkeypatch.setattr(sqlite3, "connect", refused)
    with pytest.raises(JournalError, match="copy it, with its `-wal`, to a folder of yours"):
        JournalFile(path)


def test_a_newer_journal_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    set_version(path, SCHEMA + 1, "9.1")
    before = path.read_bytes()
    for opened in (Journal, JournalFile, open_journal):
        with pytest.raises(JournalError) as caught:
            opened(path)
        text = str(caught.value)
        assert f"of version {SCHEMA + 1}, written by ajet-console 9.1" in text
        assert f"reads version {SCHEMA}" in text
        assert str(path) in text
        assert "Use the newer program" in text
    assert path.read_bytes() == before


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
    assert len([made for made in built if made is not None]) == 30


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
