"""Datasets: rows of both kinds, broken rows, files that cannot be used."""

import os
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
    row = _parse(id="q1", query="What is 2+2?", answer="4", level="easy")
    assert row.row_id == "q1"
    assert row.messages == ({"role": "user", "content": "What is 2+2?"},)
    assert (row.task_id, row.reference) == ("q1", "4")
    assert row.metadata["level"] == "easy"


def test_a_system_text_comes_first() -> None:
    row = _parse(query="hi", system="Be brief.")
    assert [message["role"] for message in row.messages] == ["system", "user"]
    assert row.row_id == "row-7"


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


def test_a_row_nested_without_end_is_broken() -> None:
    with pytest.raises(RowError, match="nested too deeply"):
        parse(1, b'{"query":' + b"[" * 100_000)


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


def test_the_usual_names_need_no_mapping() -> None:
    row = _parse(question="2+2?", solution="4", level=3)
    assert (row.query, row.reference, row.metadata) == ("2+2?", "4", {"solution": "4", "level": 3})
    row = _parse(
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    )
    assert (row.query, row.reference, len(row.messages)) == ("hi", "ho", 1)


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
