"""The mock user in words, and the preview of a dataset."""

import pytest

from console.models.preview import read_preview
from console.screens.mock.text import result_line, summary_lines
from console.session.mock_facts import rate, seconds_left
from console.text.lines import line_width
from core.events import MockRowDone
from core.state import Mock
from tests.support.checks import missing
from tests.support.groups import text_of
from tests.support.sample import HOSTILE, NOW


def mock(**more: object) -> Mock:
    """A mock user half through."""
    made = Mock(mock_id="m", dataset="d.jsonl", target="http://x/v1", total=20, started_at=NOW)
    made.rows = [
        MockRowDone(
            mock_id="m1", row_id=f"r{n}", query=HOSTILE, ok=n != 3, seconds=1.0, at=NOW + n + 1
        )
        for n in range(10)
    ]
    made.done, made.failed = 10, 1
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_an_ended_run_shows_its_average() -> None:
    result = text_of(summary_lines(mock(phase="finished", ended_at=NOW + 20), NOW + 500, 80))
    assert "on average 30.0/min" in result


def test_rate_and_time_left() -> None:
    assert rate(mock(), NOW + 10) == pytest.approx(1.0)
    assert seconds_left(mock(), NOW + 10) == pytest.approx(10.0)
    assert seconds_left(mock(phase="paused"), NOW + 10) is None
    assert rate(mock(rows=[]), NOW + 10) is None
    assert rate(mock(phase="paused"), NOW + 500) == pytest.approx(1.0)
    few = mock(rows=mock().rows[:4])
    assert rate(few, NOW + 4.2) is None
    assert rate(few, NOW + 20) == pytest.approx(0.2)


def test_the_summary_says_what_requests_wait_for() -> None:
    one = mock(retries=3, waiting="the target answers 503: full \x1b")
    result = text_of(summary_lines(one, NOW + 10, 80))
    assert not missing(result, "1 failed  3 retries", "! the target answers 503: full")
    assert "\x1b" not in result
    assert "1 retry  " in text_of(summary_lines(mock(retries=1), NOW + 10, 80))
    stalled = text_of(summary_lines(one, NOW + 10, 80, stall="1 request waits for your rating"))
    assert "! 1 request waits for your rating  3 opens Rate" in stalled
    assert "503" not in stalled
    for ended in (mock(waiting="x 503", ended_at=NOW), mock(waiting="x 503", phase="paused")):
        assert "503" not in text_of(summary_lines(ended, NOW + 10, 80))


def test_the_summary_counts_ok_failed_and_skipped() -> None:
    result = text_of(summary_lines(mock(skipped=2, already=4), NOW + 10, 80))
    assert not missing(
        result, "9 ok", "1 failed", "2 skipped", "4 done before", "60.0/min", "running"
    )
    failed = mock(phase="failed", cause="the proxy is gone", ended_at=NOW + 20)
    assert "the proxy is gone" in text_of(summary_lines(failed, NOW, 80))


@pytest.mark.parametrize("width", [60, 78, 158])
def test_figures_are_never_truncated(width: int) -> None:
    more = {"skipped": 20, "already": 40, "concurrency": 12, "pace": 0.6, "passes": 3, "seed": 123}
    full = mock(total=60, split="train", **more)
    result = summary_lines(full, NOW + 10, width)
    assert all(line_width(line) <= width for line in result[1:])
    assert not missing(
        text_of(result),
        "40 done before",
        "left 10s",
        "x12",
        "pace 0.6s",
        "passes 3",
        "seed 123",
        "train",
    )


def test_results_fit_their_width() -> None:
    lines = [result_line(row, 80) for row in mock().rows]
    assert all(line_width(line) <= 80 for line in lines)
    assert text_of([lines[3]]).startswith("✗")
    assert "\x1b" not in text_of(lines)


def test_a_preview_shows_rows_problems_and_errors(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    file = folder / "rows.jsonl"
    file.write_text('{"query": "one", "answer": "1"}\nnot json\n{"query": "two"}\n')
    result = read_preview(str(file))
    assert result.rows == (("one", "1"), ("two", ""))
    assert result.problems[0].startswith("line 2: not JSON")
    assert read_preview("").rows
    assert "cannot be read" in read_preview(str(folder / "none")).error
    assert read_preview(str(folder)).rows == result.rows
    (folder / "more.csv").write_text("query\na\n")
    assert "more.csv, rows.jsonl" in read_preview(str(folder)).error
    assert "cannot be read" in read_preview("\0").error
    file.write_text("nothing\n")
    assert read_preview(str(file)).error == "no usable row at its beginning"
