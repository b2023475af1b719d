"""Usual layouts of datasets: each is read, or refused with the reason."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ajet_swarm.data.records import RowError
from ajet_swarm.protocol.errors import DatasetError
from mock.dataset import Row, open_dataset
from mock.dataset.columns import read_columns
from tests.unit.mock.helpers import parse

USER = {"role": "user", "content": "What is 7 times 6?"}
SYSTEM = {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "42"}
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def row(columns: str = "", **record: Any) -> Row:
    """A record as a row."""
    return parse(1, msgspec.json.encode(record), read_columns(columns))


@pytest.mark.parametrize(
    ("record", "query", "reference"),
    [
        ({"instruction": "Sort.", "input": "b a", "output": "a b"}, "Sort.\n\nb a", "a b"),
        ({"instruction": "Sort.", "input": "", "output": "x"}, "Sort.", "x"),
        ({"input": "2 + 2?", "target": "4"}, "2 + 2?", "4"),
        ({"instruction": "When?", "context": "In 1911.", "response": "1911"}, None, "1911"),
        (
            {"context": "In 1911.", "question": "When?", "answers": {"text": ["1911", "in 1911"]}},
            "When?\n\nIn 1911.",
            "1911",
        ),
        ({"question": "a?", "options": "A) one B) two"}, "a?\n\nA) one B) two", None),
        ({"question": "a?", "answer": ["first", "second"]}, "a?", "first"),
        ({"prompt": "a?", "chosen": [USER, ANSWER], "rejected": [USER]}, "a?", "42"),
        ({"prompt": [SYSTEM, USER], "solution": "42"}, USER["content"], "42"),
        ({"prompt": [USER], "reward_model": {"ground_truth": 42}}, USER["content"], "42"),
        ({"prompt": "hi", "messages": [{"role": "user", "content": "hi"}, ANSWER]}, "hi", "42"),
        ({"messages": "[" + msgspec.json.encode(USER).decode() + "]"}, USER["content"], None),
        ({"prompt": "[" + msgspec.json.encode(USER).decode() + "]"}, USER["content"], None),
        ({"body": {"messages": [USER], "model": "m"}}, USER["content"], None),
        ({"input": [USER], "ideal": "42"}, USER["content"], "42"),
    ],
)
def test_a_usual_layout_is_read(
    record: dict[str, Any], query: str | None, reference: str | None
) -> None:
    result = row(**record)
    assert result.query == (query or "When?\n\nIn 1911.")
    assert result.messages[-1] == {"role": "user", "content": result.query}
    assert result.reference == reference


def test_sharegpt_is_a_conversation_whose_last_answer_is_the_reference() -> None:
    said = [("system", "s"), ("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")]
    result = row(conversations=[{"from": who, "value": text, "weight": None} for who, text in said])
    assert [(one["role"], one["content"]) for one in result.messages] == [
        ("system", "s"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]
    assert (result.query, result.reference) == ("c", "d")


def test_an_answer_before_a_separate_query_is_kept() -> None:
    result = row(init_messages=[USER, ANSWER], main_query="And 7 times 7?")
    assert list(result.messages) == [USER, ANSWER, {"role": "user", "content": "And 7 times 7?"}]
    assert result.reference is None


def test_a_query_that_begins_the_conversation_is_not_asked_again() -> None:
    later = {"role": "user", "content": "And 7 times 7?"}
    result = row(prompt=USER["content"], messages=[USER, ANSWER, later, ANSWER])
    assert list(result.messages) == [USER, ANSWER, later]
    assert (result.query, result.reference) == (later["content"], "42")


def test_images_tools_calls_and_results_are_kept() -> None:
    seen = {"role": "user", "content": [{"type": "text", "text": "Is this Oslo?"}, IMAGE]}
    result_of_tool = {"role": "tool", "content": "rain", "name": None, "ip": "10.0.0.1"}
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = row(
        messages=[seen, called, result_of_tool], tools=msgspec.json.encode([TOOL]).decode()
    )
    assert result.query == "Is this Oslo?"
    assert result.messages[0] == seen
    (call,) = result.messages[1]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}
    assert result.messages[2] == {"role": "tool", "content": "rain", "tool_call_id": call["id"]}
    assert result.tools == (TOOL,)
    assert row(query="a", tools=[FUNCTION]).tools == (TOOL,)
    assert row(query="a", tools="null").tools == ()


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        ({"question": "a?", "choices": ["x", "y"], "answer": 1}, "`choices` belongs to the quest"),
        ({"question": "a?", "image": "cat.png"}, "`image` belongs to the question"),
        ({"conversations": [{"from": "human", "value": "<image>"}], "image": "x"}, "`image` belon"),
        ({"messages": [USER], "context": "In 1911."}, "`context` belongs to the question"),
        ({"instruction": "a", "history": [["q", "a"]]}, "`history` belongs to the question"),
        ({"prompt": ["a", "b"]}, "`prompt` is not text, nor a list of messages"),
        ({"conversations": [{"from": "observation", "value": "x"}]}, "unknown role: `observation`"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "block `image` without"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "last user message .* no text"),
        ({"messages": [{"role": "user"}]}, "whose content is not text"),
        ({"messages": [USER, {**ANSWER, "tool_calls": [1]}]}, "tool call without a function"),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": [
                {"function": {"name": "f", "arguments": "{"}}]}]},
            "arguments are no JSON object",
        ),
        ({"messages": [SYSTEM, ANSWER]}, "no message of the user or of a tool to answer"),
        ({"query": "a", "tools": ["bash"]}, "`tools` is not a list of functions"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_is_refused_with_the_reason(record: dict[str, Any], cause: str) -> None:
    with pytest.raises(RowError, match=cause):
        row(**record)


def test_a_part_can_be_ignored_by_an_empty_name() -> None:
    assert row("context=", question="a?", choices=["x"], context="c").query == "a?"
    assert row("tools=", query="a", tools=["bash"]).tools == ()
    result = row("context=passage", question="a?", context="c", passage="p")
    assert result.query == "a?\n\np"


@pytest.mark.parametrize(
    ("record", "advice"),
    [
        ({"id": "r-17", "said": [{"from": "human", "value": "a"}]}, "messages=said"),
        ({"row_id": "r 17", "text": "What is this?"}, "query=text"),
        ({"query_id": "q 1", "number": 4}, "query=COLUMN"),
        ({"uuid": "1", "request": "What is this?"}, "query=request"),
        ({"queryHash": "a1 b2", "text": "What is this?"}, "query=text"),
    ],
)
def test_the_advised_column_is_none_of_ids(
    tmp_path: Path, record: dict[str, Any], advice: str
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(msgspec.json.encode(record))
    with pytest.raises(DatasetError, match=f"--columns {advice}$"):
        open_dataset(path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_missing_number_loses_no_row(value: str) -> None:
    line = f'{{"query": "a NaN", "answer": {value}, "weight": {value}, "x": [{value}]}}'
    result = parse(1, line.encode())
    assert (result.query, result.reference, result.weight) == ("a NaN", None, 1.0)
    for broken in (
        b'{"query": NaN}',
        b'{"query": "a", "x": nan}',
        b'{"query": "\\ud800", "x": NaN}',
    ):
        with pytest.raises(RowError, match=r"no query|not JSON"):
            parse(1, broken)


def test_missing_numbers_of_a_table_are_missing(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"prompt": [[USER]], "answer": [float("nan")], "weight": [float("nan")]}
    parquet.write_table(arrow.table(table), tmp_path / "d.parquet")
    with open_dataset(tmp_path / "d.parquet") as dataset:
        result = dataset.row(0)
    assert isinstance(result, Row)
    assert (result.messages, result.reference, result.weight) == ((USER,), None, 1.0)


@pytest.mark.parametrize(
    ("compress", "kind", "program"),
    [(gzip.compress, "gzip", "gunzip"), (bz2.compress, "bzip2", "bunzip2")],
)
def test_a_compressed_file_is_named(
    tmp_path: Path, compress: Callable[[bytes], bytes], kind: str, program: str
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(compress(b'{"query": "a"}\n'))
    with pytest.raises(DatasetError, match=rf"{kind}-compressed.*Run {program} first"):
        open_dataset(path)


def test_a_folder_with_one_text_file_or_a_train_split_is_read(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# card")
    (tmp_path / "rows.jsonl").write_text('{"query": "a"}\n')
    with open_dataset(tmp_path) as dataset:
        assert dataset.path == tmp_path / "rows.jsonl"
    (tmp_path / "train.jsonl").write_text('{"query": "b"}\n')
    with open_dataset(tmp_path) as dataset:
        assert dataset.path == tmp_path / "train.jsonl"


def test_a_folder_lists_what_it_holds(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.csv", "sub/c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"query": "a"}\n')
    with pytest.raises(DatasetError, match=r"a\.jsonl, b\.csv, sub/c\.json.*Name one, for example"):
        open_dataset(tmp_path)


def test_broken_rows_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"broken\n" * 3 + b'{"query": ""}\n{"query": "a\xff"}\n{"query": "aa\xff"}\n')
    with pytest.raises(DatasetError) as caught, open_dataset(path):
        pass
    assert "line 1: not JSON" in str(caught.value)
    assert "(and 2 more like it)" in str(caught.value)
    assert "line 5: not UTF-8 at byte 13 (and 1 more like it)" in str(caught.value)
    assert "line 4: no query" in str(caught.value)
