"""What was done survives any end of the process."""

from pathlib import Path

from mock.progress import Progress, key


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        assert first.done == set()
        first.mark(key(1, 3), {"row_id": "a"})
        first.mark(key(2, 3), {"row_id": "a~2"})
    with Progress(tmp_path, "d") as second:
        assert second.done == {"1:3", "2:3"}
        assert second.mock_id.rpartition("-")[0] == first.mock_id.rpartition("-")[0]
        assert second.mock_id.endswith("-2")
        second.mark(key(1, 4), {"row_id": "b"})
    with Progress(tmp_path, "d") as third:
        assert third.done == {"1:3", "2:3", "1:4"}
    assert first.results.read_text() == '{"row_id":"a"}\n{"row_id":"a~2"}\n'


def test_a_finished_run_begins_anew(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(key(1, 1), {})
        first.finish()
    with Progress(tmp_path, "d") as second:
        assert second.done == set()
        assert second.mock_id.rpartition("-")[0] != first.mock_id.rpartition("-")[0]


def test_restart_forgets(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(key(1, 1), {})
    with Progress(tmp_path, "d", restart=True) as second:
        assert second.done == set()


def test_a_torn_line_is_not_taken_for_another_row(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(key(1, 12), {})
    with first.path.open("a") as file:
        file.write("1:3")  # of 1:34, say
    with Progress(tmp_path, "d") as second:
        assert second.done == {"1:12"}
        second.mark(key(1, 34), {})
    with Progress(tmp_path, "d") as third:
        assert third.done == {"1:12", "1:34"}


def test_runs_of_other_names_know_nothing_of_it(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(key(1, 1), {})
    with Progress(tmp_path, "e") as other:
        assert other.done == set()
