"""Statements of pruning: how much they read and change."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import core.journal.prune_rows
from core.journal import storage
from core.journal.prune_rows import Listed, read_rows, release_pages
from core.journal.texts import TextWriter


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(tmp_path / "j.db", isolation_level=None)) as made:
        storage.begin_file(made)
        storage.prepare(made, 0)
        yield made


def fill(db: sqlite3.Connection, rows: int, size: int) -> None:
    db.executemany(
        "insert into events values (?,?)",
        [(number, b"x" * size) for number in range(1, rows + 1)],
    )


def test_as_many_pages_are_released_as_asked_for(db: sqlite3.Connection) -> None:
    fill(db, 40, storage.PAGE)
    db.execute("delete from events")

    def free() -> int:
        return int(db.execute("pragma freelist_count").fetchone()[0])

    before = free()
    assert before > 30
    db.execute("begin immediate")
    release_pages(20, db, TextWriter(db))
    db.execute("commit")
    assert free() == before - 20


def test_a_read_ends_after_a_number_of_bytes(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(db, 10, 1_000)
    assert [seq for seq, _ in read_rows(db, 2, 9, 100)] == [3, 4, 5, 6, 7, 8, 9]
    assert [seq for seq, _ in read_rows(db, 2, 9, 2)] == [3, 4]
    monkeypatch.setattr(core.journal.prune_rows, "READ_BYTES", 2_500)
    assert [seq for seq, _ in read_rows(db, 0, 9, 100)] == [1, 2, 3]
    monkeypatch.setattr(core.journal.prune_rows, "READ_BYTES", 1)
    assert [seq for seq, _ in read_rows(db, 3, 9, 100)] == [4]
    assert read_rows(db, 9, 9, 100) == []


def test_a_group_is_looked_up_once(db: sqlite3.Connection) -> None:
    db.execute("insert into groups values ('a\u00e9', 1, 1.0, 'DONE', '', '', 2, 0)")
    queries: list[str] = []
    db.set_trace_callback(queries.append)
    listed = Listed(db)
    for _ in range(5):
        assert listed.has('{"group_id":"a\u00e9"}'.encode())
        assert not listed.has(b'{"group_id":"b"}')
        assert not listed.has(b'{"kind":"alert"}')
    assert len(queries) == 2
