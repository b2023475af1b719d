"""The fields of the mock user: their values, and the text for each."""

import pytest

from console.screens.mock.form import FIELDS, MockFieldError, read_fields


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
