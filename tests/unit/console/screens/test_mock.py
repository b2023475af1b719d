"""The mock user: its fields, its figures, the preview of a dataset."""

import pytest

from console.models.preview import read_preview
from console.screens.mock.form import FIELDS, MockFieldError, read_fields
from console.screens.mock.text import summary_lines
from console.session.mock_facts import rate, seconds_left
from core.events import MockRowDone
from core.state import Mock
from tests.support.checks import missing
from tests.support.groups import text_of
from tests.support.sample import HOSTILE, NOW


def test_valid_fields_become_arguments() -> None:
    assert read_fields({}) == {}
    value = {"dataset": " a.jsonl ", "concurrency": "4", "pace": "0.5", "passes": "2"}
    assert read_fields(value) == {"dataset": "a.jsonl", "concurrency": 4, "pace": 0.5, "passes": 2}


def test_all_fields() -> None:
    value = {
        "target": "http://host:1/v1",
        "columns": "query=text,reference=label",
        "rate": "0.5",
        "seed": "-7",
        "split": "held",
        "held_out": "0.2",
        "updates": "10",
        "pause_sync": "pause",
        "results": "out.jsonl",
    }
    assert read_fields(value) == {
        **value,
        "rate": 0.5,
        "seed": -7,
        "split": "held-out",
        "held_out": 0.2,
        "updates": 10,
        "pause_sync": True,
    }
    assert read_fields({"split": "all", "pause_sync": "ask on"}) == {}


@pytest.mark.parametrize("other", ["pace", "concurrency"])
def test_a_rate_excludes_pace_and_concurrency(other: str) -> None:
    with pytest.raises(MockFieldError, match=f"Rate /s and {FIELDS[other].label}"):
        read_fields({"rate": "1", other: "2"})
    with pytest.raises(MockFieldError, match="needs a side"):
        read_fields({"held_out": "0.1"})


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("concurrency", "0"),
        ("concurrency", "many"),
        ("concurrency", "²"),
        ("passes", "-1"),
        ("passes", "1.5"),
        ("pace", "fast"),
        ("pace", "-1"),
        ("pace", "nan"),
        ("pace", "inf"),
        ("rate", "0"),
        ("rate", "nan"),
        ("seed", "x"),
        ("seed", "--1"),
        ("split", "a side"),
        ("held_out", "1.1"),
        ("pause_sync", "maybe"),
        ("updates", "0"),
        ("target", "localhost:8000"),
        ("target", "fake vLLM"),
        ("columns", "query"),
        ("columns", "=x"),
    ],
)
def test_invalid_fields_are_named(field: str, text: str) -> None:
    with pytest.raises(MockFieldError, match=f"{FIELDS[field].label} cannot be") as caught:
        read_fields({field: text})
    assert caught.value.field == field


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


def test_rate_and_time_left() -> None:
    assert rate(mock(), NOW + 10) == pytest.approx(1.0)
    assert seconds_left(mock(), NOW + 10) == pytest.approx(10.0)
    assert seconds_left(mock(phase="paused"), NOW + 10) is None
    assert rate(mock(rows=[]), NOW + 10) is None
    assert rate(mock(phase="paused"), NOW + 500) == pytest.approx(1.0)
    few = mock(rows=mock().rows[:4])
    assert rate(few, NOW + 4.2) is None
    assert rate(few, NOW + 20) == pytest.approx(0.2)


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


def test_the_summary_counts_retries_and_skipped_rows() -> None:
    shown = text_of(summary_lines(mock(retries=1, skipped=2), NOW + 10, 80))
    assert not missing(shown, "1 failed", "1 retry  ", "2 skipped")
    ended = summary_lines(mock(phase="finished", ended_at=NOW + 20), NOW + 500, 80)
    assert "on average 30.0/min" in text_of(ended)
