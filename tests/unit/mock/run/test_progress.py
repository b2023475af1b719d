"""Finished rows survive any end of the process."""

from pathlib import Path

import pytest

from mock.run.progress import InFlightRow, Key, KeySet, Progress, read_key


def has(marks: KeySet, *keys: str) -> bool:
    """Whether exactly these are marked."""
    result = [read_key(key) for key in keys]
    return marks.count(9) == len(keys) and all(key in marks for key in result if key)


def test_a_run_continues_where_it_stopped(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        assert first.done.count(9) == 0
        first.mark(Key(1, 3), {"row_id": "a"})
        first.mark(Key(2, 3), {"row_id": "a~2"})
    with Progress(tmp_path, "d") as second:
        assert has(second.done, "1:3", "2:3")
        assert second.mock_id.rpartition("-")[0] == first.mock_id.rpartition("-")[0]
        assert second.mock_id.endswith("-2")
        second.mark(Key(1, 4), {"row_id": "b"})
    with Progress(tmp_path, "d") as third:
        assert has(third.done, "1:3", "2:3", "1:4")
    assert first.results.read_text() == '{"row_id":"a"}\n{"row_id":"a~2"}\n'


def test_after_a_finished_run_a_new_one_begins(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(Key(1, 1), {})
        first.finish()
    with Progress(tmp_path, "d") as second:
        assert second.done.count(9) == 0
        assert second.mock_id.rpartition("-")[0] != first.mock_id.rpartition("-")[0]


def test_restart_discards_the_progress(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(Key(1, 1), {})
    with Progress(tmp_path, "d", restart=True) as second:
        assert second.done.count(9) == 0


def test_a_torn_line_is_not_taken_for_another_row(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(Key(1, 12), {})
    with first.path.open("a") as file:
        file.write("1:3")  # of 1:34, say
    with Progress(tmp_path, "d") as second:
        assert has(second.done, "1:12")
        second.mark(Key(1, 34), {})
    with Progress(tmp_path, "d") as third:
        assert has(third.done, "1:12", "1:34")


def test_progress_is_separate_for_each_name(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(Key(1, 1), {})
    with Progress(tmp_path, "e") as other:
        assert other.done.count(9) == 0


def test_rows_in_flight_at_a_kill_are_lost_but_abandoned_rows_are_not(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        for line in (1, 2, 3):
            first.ask(Key(1, line), f"r{line}", 'a "query"\nof two lines ü')
        first.mark(Key(1, 1), {})
        first.back(Key(1, 3))
    with Progress(tmp_path, "d") as second:
        lost = {
            Key(1, 2): InFlightRow(
                row_id="r2", query='a "query"\nof two lines ü', mock_id=first.mock_id
            )
        }
        assert second.lost == lost
        assert has(second.done, "1:1")


def test_a_mark_without_more_is_read(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        path = first.path
    with path.open("a") as file:
        file.write("ask 1:7\nask 1:8 {torn\n")
    with Progress(tmp_path, "d") as second:
        assert second.lost == {Key(1, 7): InFlightRow(), Key(1, 8): InFlightRow()}


@pytest.mark.slow
def test_many_keys_are_small() -> None:
    marks = KeySet()
    for line in range(0, 800_000, 8):
        marks.add(Key(1, line))
    assert marks.count(1) == 100_000
    assert Key(1, 800) in marks
    assert Key(1, 801) not in marks
    assert Key(2, 800) not in marks
    assert sum(len(bits) for bits in marks._bits.values()) < 110_000


def test_keys_read_what_they_write() -> None:
    for key in (Key(1, 2), Key(3, 40, 2)):
        assert read_key(str(key)) == key
    for text in ("", "1", "a:b", "1:2:3:4", "1:²", "-1:2"):
        assert read_key(text) is None
