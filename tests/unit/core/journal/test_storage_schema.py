"""Journals of other schemas: an old one is read unchanged, a newer one is refused by name."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from core.bus import Bus
from core.events import Event, GroupNoted
from core.journal.history import read_page
from core.journal.read_only import JournalFile
from core.journal.storage import SCHEMA
from core.journal.writer import Journal, JournalError
from core.reducer import reduce
from core.state import State

OLD = Path(__file__).parents[3] / "data/journal_d3182bb.db"
"""Written by the code of commit d3182bb, see `tests/data/make_journal_d3182bb.py`."""
LINES = OLD.with_suffix(".jsonl").read_bytes().splitlines()
"""Its events, as that code read them."""
_ROWS = "select seq, kind, group_id, data from events order by seq"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLD, tmp_path / "journal.db"))


def rows(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(_ROWS).fetchall()


def lines(events: list[Event]) -> list[bytes]:
    return [msgspec.json.encode(one) for one in events]


def test_the_old_journal_is_of_schema_2(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma user_version").fetchone() == (2,)
        assert len(LINES) > 100


def test_an_old_journal_is_read_in_place(path: Path) -> None:
    before = path.read_bytes()
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with JournalFile(path) as file:
            assert file._copy is None
            events = file.events(0, 100_000)
            assert lines(list(events)) == LINES
            state = State()
            for event in events:
                reduce(state, event)
            assert file.state() == state
            assert [one.run_id for one in file.runs()] == ["run-0", "run-1"]
            page = file.page(0, 50, file.last_seq())
            assert page.total == len(page.groups) == 7
            assert file.base() is None
    finally:
        path.parent.chmod(0o700)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_a_proxy_goes_on_with_an_old_journal_and_rewrites_none_of_its_rows(
    path: Path,
) -> None:
    before = rows(path)
    journal = Journal(path)
    assert lines(list(journal.events(0, 100_000))) == LINES
    state = journal.load_state()
    assert state == journal.replayed_state()
    bus = Bus(journal, "run-2", state)
    note = "a note of a person, long enough to be compressed " * 9
    bus.publish(GroupNoted(group_id="g0099", note=note))
    await bus.publish_durable(GroupNoted(group_id="g0001", note=note))
    assert rows(path)[: len(before)] == before
    assert read_page(journal, 1, 1).groups[0].note == note
    events = journal.events(0, 100_000)
    assert lines(list(events))[: len(LINES)] == LINES
    assert len(events) == len(LINES) + 2
    journal.close()
    again = Journal(path)
    assert again.load_state() == bus.state == again.replayed_state()
    again.close()
    with JournalFile(path) as file:
        assert file.state() == bus.state


def test_a_newer_journal_is_refused_by_name(path: Path) -> None:
    Journal(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("update meta set value='9.1' where key='written_by'")
        db.execute(f"pragma user_version={SCHEMA + 1}")
        db.commit()
    before = path.read_bytes()
    for opened in (Journal, JournalFile):
        with pytest.raises(JournalError) as caught:
            opened(path)
        text = str(caught.value)
        assert f"of version {SCHEMA + 1}, written by ajet-console 9.1" in text
        assert f"knows versions up to {SCHEMA}" in text
        assert str(path) in text
        assert "Use the newer program" in text
    assert path.read_bytes() == before
