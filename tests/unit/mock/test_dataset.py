"""Datasets: rows of both kinds, broken rows, files that cannot be used."""

import bz2
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ajet_swarm.common.errors import UsageError
from ajet_swarm.data.records import LINE_LIMIT, RowError
from ajet_swarm.protocol.errors import DatasetError
from mock.dataset import BadRow, Columns, Row, open_dataset
from mock.dataset.columns import read_columns
from mock.dataset.rows import side_of
from tests.unit.mock.helpers import parse


def _parse(**row: Any) -> Row:
    return parse(7, msgspec.json.encode(row))


def test_a_plain_row_becomes_one_user_message() -> None:
    parsed = _parse(id="q1", query="What is 2+2?", answer="4", level="easy")
    assert parsed.messages == ({"role": "user", "content": "What is 2+2?"},)
    assert (parsed.row_id, parsed.task_id, parsed.reference) == ("q1", "q1", "4")
    assert parsed.metadata["level"] == "easy"
    assert _parse(query="hi").row_id == "row-7"
    assert _parse(question="2+2?", solution="4").metadata == {"solution": "4"}


def test_a_task_keeps_its_own_conversation_metadata_and_reference() -> None:
    row = _parse(
        task_id="t/9",
        main_query="And now?",
        init_messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "first"}],
        metadata={"answer": "then", "source": "x"},
    )
    assert [message["content"] for message in row.messages] == ["s", "first", "And now?"]
    assert (row.row_id, row.reference) == ("t/9", "then")
    assert row.metadata == {"answer": "then", "source": "x"}


def test_a_task_without_a_query_is_about_its_last_user_message() -> None:
    row = _parse(
        main_query="", init_messages=[{"role": "user", "content": [{"type": "text", "text": "hm"}]}]
    )
    assert row.query == "hm"
    assert row.messages == ({"role": "user", "content": "hm"},)


def test_a_query_that_ends_the_conversation_is_not_sent_twice() -> None:
    row = _parse(main_query="hm", init_messages=[{"role": "user", "content": "hm"}])
    assert len(row.messages) == 1


def test_the_reference_is_in_no_message() -> None:
    row = _parse(query="2+2?", answer="the secret 4", metadata={"reference": "other"})
    assert "secret" not in repr(row.messages)
    assert row.reference == "the secret 4"


def test_an_id_fits_a_header() -> None:
    row = _parse(id=" ü\n#1 ", query="x")
    assert row.row_id.isascii()
    assert row.row_id.isprintable()
    assert "#" not in row.row_id
    assert row.task_id == "ü\n#1"


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b'{"query":' + b"[" * 100_000, "nested too deeply"),
        (b"{", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"query": ""}', "no query"),
        (b'{"query": "  "}', "no query"),
        (b'{"answer": "4"}', "no query"),
        (b'{"query": 4}', "not text"),
        (b'{"query": "\xff"}', "not UTF-8 at byte 12"),
        (b'{"query": "x", "system": 1}', "`system`"),
        (b'{"query": "x", "init_messages": {}}', "not a list"),
        (b'{"query": "x", "init_messages": [1]}', "not a message"),
    ],
)
def test_a_broken_row_says_why(data: bytes, cause: str) -> None:
    with pytest.raises(RowError, match=cause):
        parse(1, data)


def test_a_file_is_read_past_its_broken_rows(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"query": "a"}\n\nnonsense\n{"query": "b", "id": "b"}\n'
        + b'{"query": "'
        + b"x" * LINE_LIMIT
        + b'"}\n{"query": "c"}'
    )
    with open_dataset(path) as dataset:
        rows = [dataset.row(position) for position in range(dataset.records.count)]
        assert [row.query for row in rows if isinstance(row, Row)] == ["a", "b", "c"]
        assert [row.line for row in rows] == [1, 3, 4, 5, 6]
        bad = [row for row in rows if isinstance(row, BadRow)]
        assert [row.line for row in bad] == [3, 5]
        assert "longer than" in bad[1].cause


@pytest.mark.parametrize("content", [b"", b"\n\n", b"broken\n"])
def test_a_file_without_a_usable_row_is_an_error_with_its_path(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"d\.jsonl.*no usable row"):
        open_dataset(path)


def test_a_row_changed_on_disk_is_broken_instead_of_wrong(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"query": "a"}\n{"query": "b"}\n')
    with open_dataset(path) as dataset:
        os.truncate(path, 20)
        assert isinstance(dataset.row(0), Row)
        assert isinstance(dataset.row(1), BadRow)


def test_a_seed_shuffles_each_pass_in_its_own_way(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(f'{{"query": "{n}"}}\n' for n in range(50)))
    with open_dataset(path) as dataset:
        assert list(dataset.order("1", None)) == list(range(50))
        first, second = list(dataset.order("1", 3)), list(dataset.order("2", 3))
        assert first == list(dataset.order("1", 3))
        assert first != second
        assert sorted(first) == sorted(second) == list(range(50))


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"query": "a"}\n')
    with open_dataset(path) as dataset:
        before = dataset.fingerprint()
        assert before == dataset.fingerprint()
    path.write_text('{"query": "b"}\n')
    with open_dataset(path) as dataset:
        assert dataset.fingerprint() != before


# --- columns, turns, weights, split -----------------------------------------------------------


def test_columns_can_be_named() -> None:
    columns = read_columns("query=q, answer=label,id=key")
    row = parse(1, b'{"q": "hm", "query": "no", "label": 7, "key": "k", "answer": "x"}', columns)
    assert (row.query, row.reference, row.row_id) == ("hm", "7", "k")


@pytest.mark.parametrize("text", ["qury=x", "query", "query=", "=x"])
def test_a_mapping_that_cannot_be_read_says_which_parts_there_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"PART=COLUMN.*query") as caught:
        read_columns(text)
    assert text in str(caught.value)
    if text == "qury=x":
        assert "Did you mean `query`" in str(caught.value)


def test_a_wrong_column_is_named_with_near_ones(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("qestion,answer_text\nred?,yes\n")
    with pytest.raises(DatasetError, match=r"no column holds the query.*`qestion`.*query=qestion"):
        open_dataset(path)
    with pytest.raises(
        DatasetError, match=r"no column `answer` for reference.*similar.*`answer_text`"
    ):
        open_dataset(path, Columns({"query": "qestion", "reference": "answer"}))
    path = tmp_path / "d.jsonl"
    path.write_text('{"qery": "a"}\n{"qery": "b"}\n')
    with pytest.raises(DatasetError, match="--columns query=qery"):
        open_dataset(path)


def test_turns_follow_one_another() -> None:
    row = _parse(turns=["hi", {"query": "2+2?", "answer": "4"}], system="Be brief.")
    assert [message["content"] for message in row.messages] == ["Be brief.", "hi"]
    assert [(turn.query, turn.reference) for turn in row.then] == [("2+2?", "4")]
    row = _parse(query="hi", turns=["and?"])
    assert (row.query, [turn.query for turn in row.then]) == ("hi", ["and?"])
    row = parse(1, msgspec.json.encode({"turns": '["a", "b"]'}))
    assert (row.query, len(row.then)) == ("a", 1)


@pytest.mark.parametrize("turns", [[], "hi", [1], [""], [{"answer": "x"}], ["x"] * 101])
def test_invalid_turns_make_a_broken_row(turns: object) -> None:
    with pytest.raises(RowError, match="turn"):
        _parse(turns=turns, query="hi")


@pytest.mark.parametrize("weight", ["many", -1, float("1e9"), True, [1]])
def test_a_weight_is_a_number(weight: object) -> None:
    with pytest.raises(RowError, match="`weight` cannot be"):
        _parse(query="hi", weight=weight)
    assert _parse(query="hi", weight="2.5").weight == 2.5


def test_the_split_depends_on_the_text_and_has_about_the_requested_size() -> None:
    rows = [_parse(query=f"question {number}") for number in range(2_000)]
    held = [row for row in rows if side_of(row, 0.1) == "held-out"]
    assert 150 < len(held) < 250
    again = parse(99, msgspec.json.encode({"main_query": f"  {held[0].query} ", "id": "other"}))
    assert side_of(again, 0.1) == "held-out"
    assert not [row for row in rows if side_of(row, 0.0) == "held-out"]


def test_blocks_are_shuffled_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(f'{{"query": "{n}"}}\n' for n in range(12)))
    with open_dataset(path) as dataset:
        monkeypatch.setattr(dataset.records, "blocks", lambda: (4, 3, 5))
        positions = list(dataset.order("1", 3))
    assert sorted(positions) == list(range(12))
    assert positions != list(range(12))
    blocks = [0 if position < 4 else 1 if position < 7 else 2 for position in positions]
    assert len({at for at in range(1, 12) if blocks[at] != blocks[at - 1]}) == 2


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
    assert [(message["role"], message["content"]) for message in result.messages] == [
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
