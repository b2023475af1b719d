"""A journal with damaged pages: it is found, set aside, and what can be read of it is kept."""

import asyncio
import contextlib
import functools
import os
import random
import sqlite3
import tempfile
from pathlib import Path

import pytest

from core.bus import Bus
from core.events import GroupClosed, GroupNoted, GroupOpened
from core.journal import damage
from core.journal.damage import (
    check_in_background,
    continue_salvage,
    find_damage,
    open_journal,
    rows_in,
)
from core.journal.file import PAGE, JournalError, mark, mark_of
from core.journal.prune import PruneError, Pruner, Retention
from core.journal.stats import check_rows
from core.journal.writer import Journal
from core.runtime.home import Home
from tests.support.sample import group_events

pytestmark = pytest.mark.slow

GROUPS = 400


def written(path: Path, *, query: int = 3_000, snapshot: bool = True) -> int:
    """A journal of `GROUPS` groups, closed in order; returns the number of its last event.

    With a short query a row is in one page, with a long one in several.
    """
    content, last = _content(query, snapshot)
    path.write_bytes(content)
    return last


@functools.cache
def _content(query: int, snapshot: bool, groups: int = GROUPS) -> tuple[bytes, int]:
    """The file of such a journal and the number of its last event; each is made once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        last = _write(path, query, snapshot, groups)
        return path.read_bytes(), last


def _write(path: Path, query: int, snapshot: bool, groups: int) -> int:
    journal = Journal(path)
    bus = Bus(journal, "run")
    noise = random.Random(1)  # what cannot be compressed
    for number in range(groups):
        name = f"g{number}"
        bus.publish(
            GroupOpened(group_id=name, request_id="r", task_id="t", n=2, query="q" * query, body={})
        )
        bus.publish(GroupNoted(group_id=name, note=noise.randbytes(max(300, query // 2)).hex()))
        bus.publish(GroupClosed(group_id=name, phase="DONE"))
        if number % 10 == 9:  # a row for each ten groups
            asyncio.run(journal.committed(bus.state.seq))
    journal.put_meta("rating_mode_setting", "hold")
    if snapshot:  # else the start reads each event
        journal.append_snapshot(bus.state)
    journal.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        db.execute("vacuum")  # pages of a table are adjacent
    return bus.state.seq


def spoil(path: Path, *pages: int) -> None:
    """Overwrite whole pages, counted from 1."""
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE)
            file.write(b"\xff" * PAGE)


def page_of(path: Path, group: str) -> int:
    """The first page, from 1, with an event of that group."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        sql = "select data from rows join groups using (opened_seq) where group_id=? order by seq"
        (data,) = db.execute(sql, (group,)).fetchone()
    data = data.encode() if isinstance(data, str) else data
    return path.read_bytes().index(data[-200:]) // PAGE + 1


def roots(path: Path) -> dict[str, int]:
    """First page of each table and index."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return dict(db.execute("select name, rootpage from sqlite_master where rootpage"))


def test_a_whole_journal_is_opened_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    last = written(path)
    assert find_damage(path) == ""
    result = open_journal(path)
    with contextlib.closing(result.journal):
        assert (result.notice, result.state.seq) == ("", last)
    assert not list(tmp_path.glob("journal.db.*"))


@pytest.mark.parametrize(("query", "marked"), [(10, False), (3_000, True)])
@pytest.mark.parametrize("group", ["g60", "g150"])
def test_a_start_keeps_what_can_be_read(
    tmp_path: Path, group: str, query: int, marked: bool
) -> None:
    path = tmp_path / "journal.db"
    last = written(path, query=query, snapshot=False)
    spoil(path, page_of(path, group))
    if marked:  # the page is one of many of a row, and reading it gives no error
        mark(path, "damaged")
    spoilt = path.read_bytes()
    assert find_damage(path)
    result = open_journal(path)
    with contextlib.closing(result.journal):
        journal = result.journal
        events = journal.events(0, 10_000)
        assert last - 300 <= len(events) < last  # a page begins up to ten rows of thirty events
        assert events[-1].seq > last * 0.95
        assert f"{len(events)} of {last} events are kept" in result.notice
        assert f"{last - len(events)} are missing" in result.notice
        (aside,) = tmp_path.glob("journal.db.damaged-*")
        assert aside.name in result.notice
        assert aside.read_bytes() == spoilt
        assert journal.meta("rating_mode_setting") == "hold"
        assert result.state.seq == last
        bus = Bus(journal, "run2", result.state)
        bus.publish(GroupNoted(group_id="g0", note="after it"))
    assert find_damage(path) == ""
    again = open_journal(path)
    with contextlib.closing(again.journal):
        assert (again.notice, again.state.seq) == ("", last + 1)


def test_several_damaged_places(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    last = written(path, query=10, snapshot=False)
    spoil(path, *(page_of(path, group) for group in ("g60", "g150", "g240")))
    result = open_journal(path)
    with contextlib.closing(result.journal):
        stored = len(result.journal.events(0, 10_000))
        assert last - 3 * 70 <= stored < last
        assert f"{stored} of {last} events" in result.notice


def groups_of(path: Path) -> list[tuple[object, ...]]:
    """The rows of the list of groups."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("select * from groups order by opened_seq").fetchall()


PLACES = [
    "header",
    "map",
    "rows",
    "messages",
    "groups",
    "snapshots",
    "meta",
    "rows_of_group",
]


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_but_the_rows_of_the_page_is_lost(tmp_path: Path, place: str, logged: bool) -> None:
    """Of a lost page of a tree, all pages below it are found."""
    path = tmp_path / "journal.db"
    last = written(path, query=10)
    places = {"header": 1, "map": 2, **roots(path)}
    if logged:  # the newest rows are in the log only
        with contextlib.closing(Journal(path)) as journal:
            bus = Bus(journal, "run2", journal.load_state())
            last = bus.publish(GroupNoted(group_id="g0", note="the last"))
            asyncio.run(journal.durable(last))
            journal._end_syncs()
            wal = Path(f"{path}-wal").read_bytes()
        Path(f"{path}-wal").write_bytes(wal)
    groups = groups_of(path) if not logged else []
    spoil(path, places[place])
    mark(path, "damaged")
    result = open_journal(path)
    with contextlib.closing(result.journal) as journal:
        if not logged or result.notice:
            assert f"{last} of {last} events are kept, 0 are missing" in result.notice
        assert journal.load_state().seq == last
        if place != "meta":
            assert journal.meta("rating_mode_setting") == "hold"
    assert not groups or groups_of(path) == groups


def test_a_large_journal_is_copied_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "CHECKED_WHOLE", 0)
    path = tmp_path / "journal.db"
    with contextlib.closing(Journal(path)) as journal:
        bus = Bus(journal, "run")
        for number in range(GROUPS):
            for event in group_events(number, until="SCORING" if number == 7 else "DONE"):
                bus.publish(event)
        journal.append_snapshot(bus.state)
    last = bus.state.seq
    spoil(path, page_of(path, "g0100"))
    mark(path, "damaged")
    result = open_journal(path)
    assert "its rows are copied in the background" in result.notice
    with contextlib.closing(result.journal) as journal:
        assert result.state == bus.state
        assert journal.load_state() == bus.state
        assert journal.group_events("g0007")
        assert journal.last_seq() == last
        assert journal.group_events("g0150") == []
        new = Bus(journal, "run2", result.state)
        for event in group_events(GROUPS + 1):  # its message is one of the old ones
            new.publish(event)
    again = open_journal(path)  # it was killed before the copy began
    with contextlib.closing(again.journal) as journal:
        with pytest.raises(PruneError, match="being copied"):
            Pruner(journal, Retention()).prune(Retention(days=1))
        notices: list[str] = []
        journal.on_notice = notices.append
        copy = continue_salvage(journal)
        assert copy is not None
        copy.join(60)
        (notice,) = notices
        kept = len([event for event in journal.events(0, 100_000) if event.seq <= last])
        assert f"{kept} of {last} events are kept, {last - kept} are missing" in notice
        assert last * 0.99 < kept < last
        for name in ("g0150", f"g{GROUPS + 1:04}"):
            opened = journal.group_events(name)[0]
            assert isinstance(opened, GroupOpened)
            assert opened.body["messages"] == [{"role": "user", "content": opened.query}]
        with journal.reading() as db:
            assert not check_rows(db).lost_messages
        assert journal.page(0, 10).total >= GROUPS - 2
        assert continue_salvage(journal) is None


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("intact", [0, PAGE // 2])
def test_the_rows_outlast_any_damaged_page(tmp_path: Path, intact: int, every: int) -> None:
    path = tmp_path / "journal.db"
    content, last = _content(10, True, 1_000)
    path.write_bytes(content)
    whole = len({row[0] for table, row in rows_in(path) if table == "rows"})
    assert whole == last == 3_000
    for first in range(0, len(content), every * PAGE):
        damaged = bytearray(content)
        damaged[first + intact : first + PAGE] = b"\xa5" * (PAGE - intact)
        path.write_bytes(damaged)
        kept = {row[0] for table, row in rows_in(path) if table == "rows"}
        assert len(kept) >= 0.99 * whole, first // PAGE + 1


def test_damage_found_in_the_background_is_repaired_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "CHECKED_WHOLE", 0)
    path = tmp_path / "journal.db"
    last = written(path)  # the snapshot is whole: the state is read without the damaged page
    spoil(path, page_of(path, "g150"))
    result = open_journal(path)
    assert result.notice == ""
    lines: list[str] = []
    check_in_background(path, lines.append).join(20)
    assert lines
    assert lines[0]
    mark(path, lines[0])
    result.journal.close()
    monkeypatch.undo()
    again = open_journal(path)
    with contextlib.closing(again.journal):
        assert f"of {last} events are kept" in again.notice
        assert again.state == result.state
        assert not mark_of(path).exists()
    third = open_journal(path)
    with contextlib.closing(third.journal):
        assert third.notice == ""


@pytest.mark.parametrize("intact", [0, PAGE // 2])
@pytest.mark.parametrize("snapshot", [True, False])
def test_a_start_succeeds_whichever_page_is_damaged(
    tmp_path: Path, snapshot: bool, intact: int
) -> None:
    path = tmp_path / "journal.db"
    with contextlib.closing(Journal(path)) as journal:
        bus = Bus(journal, "run")
        for number in range(12):
            for event in group_events(number, until="DONE" if number < 10 else "SCORING"):
                bus.publish(event)
            asyncio.run(journal.committed(bus.state.seq))
        journal.put_meta("client_uuid", "ours")
        if snapshot:
            journal.append_snapshot(bus.state)
    content = path.read_bytes()
    for first in range(0, len(content), PAGE):
        home = Home(tmp_path / str(first))
        home.journal.parent.mkdir()
        damaged = bytearray(content)
        damaged[first + intact : first + PAGE] = b"\xa5" * (PAGE - intact)
        home.journal.write_bytes(damaged)
        opened = open_journal(home.journal)
        with contextlib.closing(opened.journal) as journal:
            assert home.client_uuid(journal.meta("client_uuid"))
            assert journal.meta("rating_mode_setting") is None
            for group in opened.state.open_groups():
                journal.group_events(group.group_id)
            bus = Bus(journal, "run2", opened.state)
            noted = bus.publish(GroupNoted(group_id="g0", note="after it"))
            asyncio.run(journal.committed(noted))


def test_a_start_succeeds_after_its_log_was_truncated(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with contextlib.closing(Journal(path)) as journal:
        bus = Bus(journal, "run")
        journal.put_meta("client_uuid", "ours")
        for number in range(40):
            for event in group_events(number):
                bus.publish(event)
            asyncio.run(journal.committed(bus.state.seq))
            if number == 10:
                os.truncate(f"{path}-wal", 0)
    opened = open_journal(path)
    with contextlib.closing(opened.journal) as journal:
        assert "the journal was damaged" in opened.notice
        journal.meta("client_uuid")


def test_without_room_for_a_copy_the_damaged_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    path = tmp_path / "journal.db"
    written(path)
    spoil(path, 1)
    before = path.read_bytes()
    monkeypatch.setattr(damage, "_copy_rows", full)
    with pytest.raises(JournalError, match="cannot be copied"):
        open_journal(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["journal.db"]
