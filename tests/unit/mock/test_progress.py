"""Rows that survive any end of the process, and the figures of a run."""

from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from mock.run.progress import InFlightRow, Key, Progress
from mock.tally import RunCounters, duration_text


def test_a_run_continues_where_it_stopped_until_it_is_finished(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        assert first.count(9) == 0
        first.ask(Key(1, 3), "a", "question")
        first.mark(Key(1, 3), {"row_id": "a"})
        first.mark(Key(2, 3, 2), {"row_id": "a~2"})
        first.weigh()
    with Progress(tmp_path, "d") as second:
        assert (second.run, second.mock_id) == (first.run, f"{first.run}-2")
        assert (second.count(1), second.count(9), second.weighted) == (1, 2, True)
        assert Key(1, 3) in second
        assert Key(2, 3, 2) in second
        assert Key(2, 3) not in second
        assert list(second.results()) == [{"row_id": "a"}, {"row_id": "a~2"}]
        second.finish()
    with Progress(tmp_path, "d") as third:
        assert (third.count(9), third.weighted, [*third.results()]) == (0, False, [])
        assert third.run != first.run


def test_restart_begins_a_new_run(tmp_path: Path) -> None:
    with Progress(tmp_path, "d") as first:
        first.mark(Key(1, 1), {})
    with Progress(tmp_path, "e") as other:
        assert other.count(9) == 0, "each name has its own progress"
    with Progress(tmp_path, "d", restart=True) as second:
        assert second.count(9) == 0
        assert second.run != first.run


def test_rows_in_flight_at_a_kill_are_lost_but_abandoned_rows_are_not(tmp_path: Path) -> None:
    query = 'a "query"\nof two lines ü'
    with Progress(tmp_path, "d") as first:
        for line in (1, 2, 3):
            first.ask(Key(1, line), f"r{line}", query)
        first.mark(Key(1, 1), {})
        first.back(Key(1, 1))
        first.back(Key(1, 3))
    with Progress(tmp_path, "d") as second:
        assert second.lost == [InFlightRow(Key(1, 2), "r2", query, first.mock_id)]
        assert second.count(1) == 2


def test_results_that_a_file_lacks(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with Progress(tmp_path, "d") as progress:
        for line in range(1, 5):
            progress.mark(Key(1, line), {"line": line})
        has = f'{{"run": "{progress.run}", "pass": 1, "line": 2, "copy": 1}}\n'
        other = '{"run": "other", "pass": 1, "line": 3}\n[1]\n{"pass": "x"}\n'
        file.write_text(has + other + has.replace("2", "4").rstrip())
        assert [result["line"] for result in progress.results(file)] == [1, 3, 4]
    assert file.read_text() == has + other, "a torn line is removed"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.sqlite").write_bytes(b"nonsense" * 1_000)
    with pytest.raises(UsageError, match=r"d\.sqlite: the progress is unreadable"):
        Progress(tmp_path, "d")


def test_rate_and_time_to_go_follow_the_latest_answers() -> None:
    now = [0.0]
    tally = RunCounters(rows=100, already=20, clock=lambda: now[0])
    assert (tally.rate, tally.eta) == (None, None)
    for second in range(1, 11):
        now[0] = float(second)
        tally.add("")
    assert tally.rate == 1.0
    assert tally.eta == 70.0
    assert "30/100 rows" in tally.line()
    assert "1:10 to go" in tally.line()


def test_failures_are_counted_by_cause() -> None:
    tally = RunCounters(rows=3)
    for error in ("500: oops", "", "500: oops"):
        tally.add(error)
    assert (tally.answered, tally.failed, tally.left) == (1, 2, 0)
    assert tally.errors.most_common(1) == [("500: oops", 2)]


def test_retries_are_counted_beside_failures_with_what_is_waited_for() -> None:
    tally = RunCounters(rows=3)
    tally.retry("the target answers 503: aborted by the operator")
    assert tally.line().endswith(
        "0 failed · 1 retry · the target answers 503: aborted by the operator"
    )
    tally.retry("the target answers 503: full")
    tally.add("")
    assert "1 answered · 0 failed · 2 retries" in tally.line()
    assert "503" not in tally.line()


def test_durations_are_formatted() -> None:
    assert [duration_text(seconds) for seconds in (5, 75, 3675)] == ["0:05", "1:15", "1:01:15"]
