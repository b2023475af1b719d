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
from core.journal import damage, start
from core.journal.damage import check_in_background, find_damage
from core.journal.file import mark, mark_of
from core.journal.start import open_journal
from core.journal.storage import PAGE
from core.journal.texts import lines_in
from core.journal.writer import Journal, JournalError
from core.runtime.home import Home
from tests.support.sample import group_events

pytestmark = pytest.mark.slow

GROUPS = 300


def written(path: Path, *, query: int = 3_000, snapshot: bool = True) -> int:
    """A journal of `GROUPS` groups, closed in order; returns the number of its last event.

    With a short query a row is in one page, with a long one in several.
    """
    content, last = _content(query, snapshot)
    path.write_bytes(content)
    return last


@functools.cache
def _content(query: int, snapshot: bool) -> tuple[bytes, int]:
    """The file of such a journal and the number of its last event; each is made once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        last = _write(path, query, snapshot)
        return path.read_bytes(), last


def _write(path: Path, query: int, snapshot: bool) -> int:
    journal = Journal(path)
    bus = Bus(journal, "run")
    noise = random.Random(1)  # what cannot be compressed
    for number in range(GROUPS):
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
        for (data,) in db.execute("select data from events order by seq"):
            if any(f'"group_id":"{group}"'.encode() in line for line in lines_in(data)):
                return path.read_bytes().index(data[:100]) // PAGE + 1
    raise AssertionError(f"no event of {group}")


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


def test_groups_whose_rows_are_lost_are_listed_from_their_events(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    last = written(path, query=10, snapshot=False)
    groups = groups_of(path)
    spoil(path, path.read_bytes().index(b"DONEqqq") // PAGE + 1)
    mark(path, "damaged")
    result = open_journal(path)
    with contextlib.closing(result.journal):
        assert f"{last} of {last} events are kept, 0 are missing" in result.notice
    assert groups_of(path) == groups


def groups_of(path: Path) -> list[tuple[object, ...]]:
    """The rows of the list of groups."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("select * from groups order by opened_seq").fetchall()


def test_a_file_without_a_header_is_set_aside_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    written(path)
    spoil(path, 1)
    result = open_journal(path)
    with contextlib.closing(result.journal):
        assert result.state.seq == 0
        assert "0 of 0 events are kept" in result.notice
    assert list(tmp_path.glob("journal.db.damaged-*"))


def test_damage_found_in_the_background_is_repaired_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "CHECKED_WHOLE", 0)
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


def test_the_start_of_a_large_journal_checks_the_table_it_reads_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "CHECKED_WHOLE", 0)
    path = tmp_path / "journal.db"
    last = written(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        sql = "select rootpage from sqlite_master where name='meta'"
        spoil(path, db.execute(sql).fetchone()[0])
    opened = open_journal(path)
    with contextlib.closing(opened.journal) as journal:
        assert f"{last} of {last} events are kept" in opened.notice
        assert journal.meta("rating_mode_setting") is None


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
    monkeypatch.setattr(damage, "_copy", full)
    with pytest.raises(JournalError, match="cannot be copied"):
        open_journal(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["journal.db"]
