"""Records of each kind of file: what is found, what is broken, what it costs."""

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.data.files import open_records
from ajet_swarm.data.records import LINE_LIMIT, Records, RowError
from ajet_swarm.protocol.errors import DatasetError

pytestmark = pytest.mark.slow


def read_all(records: Records) -> list[tuple[int, dict[str, Any] | str]]:
    """Line and record, or cause, of everything."""
    while records.scan():
        pass
    pairs: list[tuple[int, dict[str, Any] | str]] = []
    for position in range(records.count):
        try:
            pairs.append((records.line(position), records.record(position)))
        except RowError as error:
            pairs.append((records.line(position), str(error)))
    records.close()
    return pairs


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


NESTED = [
    {"query": 'a ] } , " \\ é'},
    {"query": "b", "more": [{"x": [1, 2]}, "]"]},
    {"query": "c"},
]
HUGE = b'{"query": "' + b"x" * (LINE_LIMIT + 5) + b'"}'


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (
            "quotes.csv",
            '\ufeffquery,answer\r\n\r\n"a, ""b""\nc",1\r\nplain 5" pipe,\r\n"last",2',
            [
                (3, {"query": 'a, "b"\nc', "answer": "1"}),
                (5, {"query": 'plain 5" pipe'}),
                (6, {"query": "last", "answer": "2"}),
            ],
        ),
        ("d.csv", "query;answer\nx;y\n", [(2, {"query": "x", "answer": "y"})]),
        ("d.csv", "query|answer\nx|y\n", [(2, {"query": "x", "answer": "y"})]),
        ("d.tsv", "query\tanswer\nx\ty\n", [(2, {"query": "x", "answer": "y"})]),
        (
            "broken.csv",
            b'q,answer\na,1\n"open,2\nb,3,4\n\xff\xfe,5\nc\x00,6\n"d",7\n"x"y,8\ne,9\n',
            [
                (2, {"q": "a", "answer": "1"}),
                (3, "quote"),
                (4, "3 values for 2"),
                (5, "not UTF-8"),
                (6, "NUL"),
                (7, {"q": "d", "answer": "7"}),
                (8, "not CSV"),
                (9, {"q": "e", "answer": "9"}),
            ],
        ),
        ("list.json", json.dumps(NESTED, indent=1), [*enumerate(NESTED, 1)]),
        (
            "inside.json",
            json.dumps({"version": 1, "data": NESTED, "more": [[1]]}, indent=1),
            [*enumerate(NESTED, 1)],
        ),
        (
            "broken.json",
            '[\n {"query": "a"},\n {"query": nonsense},\n\n 7,\n{"query":\n"b"}\n]\n',
            [(1, {"query": "a"}), (2, "not JSON"), (3, "not an object"), (4, {"query": "b"})],
        ),
        ("cut.json", '[{"query": "a"}, {"query": "b"', [(1, {"query": "a"}), (2, "not JSON")]),
        ("text-cut.json", '[{"query": "a"}, {"q": "b]', [(1, {"query": "a"}), (2, "not JSON")]),
        (
            "lines.json",
            '{"q": "a", "x": [1]}\n{"q": "b"}\n',
            [(1, {"q": "a", "x": [1]}), (2, {"q": "b"})],
        ),
        ("field.json", '{"data": [{"query": "a"}]}\n', [(1, {"query": "a"})]),
        (
            "d.jsonl",
            b'{"query": "a\x00"}\n' + HUGE + b'\n{"query": "b"}\n',
            [(1, "NUL byte at byte 13"), (2, "longer than 16 MB"), (3, {"query": "b"})],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_a_file_is_read_and_each_broken_record_has_its_reason(
    tmp_path: Path, name: str, data: bytes | str, expected: list[tuple[int, dict[str, Any] | str]]
) -> None:
    result = read_all(open_records(write(tmp_path / name, data)))
    assert [number for number, _ in result] == [number for number, _ in expected]
    for (_, found), (_, wanted) in zip(result, expected, strict=True):
        assert found == wanted if isinstance(wanted, dict) else wanted in str(found)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.csv", "query\nx\n".encode("utf-16"), "UTF-16"),
        ("b.csv", b"q,q\nx,y\n", "two columns are called `q`"),
        ("c.csv", b"\xe9,q\nx,y\n", r"c\.csv:1: not UTF-8 at byte 1"),
        ("d.json", b"query,answer\n", r"d\.json:1: this is not a JSON list"),
        ("d.json", b"\x00\x01", r"d\.json"),
        ("d.json", "[1]".encode("utf-16"), r"d\.json"),
        ("d.parquet", b"query\n", "not a Parquet file"),
    ],
)
def test_a_file_of_another_kind_is_an_error(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    with pytest.raises(DatasetError, match=words):
        open_records(write(tmp_path / name, data))


def test_a_large_file_is_not_loaded_into_memory(tmp_path: Path) -> None:
    """50 MB of rows: found by walking once, and never more than a few of them in memory."""
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        for number in range(50_000):
            file.write(b'{"query": "question %06d", "pad": "%s"}\n' % (number, b"x" * 1_000))
    assert path.stat().st_size > 50_000_000
    tracemalloc.start()
    try:
        with open_records(path) as records:
            records.scan(200)
            assert tracemalloc.get_traced_memory()[1] < 4_000_000, (
                "it was opened without reading it"
            )
            while records.scan(10_000):
                pass
            assert records.count == 50_000
            for position in (49_999, 3, 25_000):
                assert records.record(position)["query"] == f"question {position:06d}"
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_a_missing_file_a_pipe_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.csv", tmp_path, Path("/dev/null")):
        with pytest.raises(DatasetError, match=str(path)):
            open_records(path)


# --- tables -------------------------------------------------------------------------------------


def test_without_pyarrow_the_extra_is_named_and_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path / "d.parquet", b"PAR1 and so on")
    with pytest.raises(DatasetError, match=r"d\.parquet.*pyarrow.*ajet-console\[data\]"):
        open_records(path)
    assert read_all(open_records(write(tmp_path / "d.jsonl", '{"q": "a"}\n'))) == [(1, {"q": "a"})]


def _table(count: int, start: int = 0) -> Any:
    arrow = pytest.importorskip("pyarrow")
    numbers = range(start, start + count)
    return arrow.table(
        {
            "question": [f"q{number}" for number in numbers],
            "answer": [str(number) for number in numbers],
        }
    )


def queries(records: Records) -> list[str]:
    return [record["question"] for _, record in read_all(records) if isinstance(record, dict)]


def test_parquet_is_read_by_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("ajet_swarm.data.tables.WINDOW", 16)
    parquet.write_table(_table(100), tmp_path / "d.parquet", row_group_size=40)
    with open_records(tmp_path / "d.parquet") as records:
        assert records.whole
        assert records.count == 100
        assert list(records.blocks()) == [16, 16, 8, 16, 16, 8, 16, 4]
        for position in [*range(100), *reversed(range(100))]:
            assert records.record(position) == {"question": f"q{position}", "answer": f"{position}"}
            assert records.line(position) == position + 1


def test_a_parquet_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(_table(100), tmp_path / "d.parquet")
    data = (tmp_path / "d.parquet").read_bytes()
    with pytest.raises(DatasetError, match=r"d\.parquet.*not a Parquet file"):
        open_records(write(tmp_path / "d.parquet", data[: len(data) // 2]))


def _save(folder: Path, counts: list[int]) -> None:
    """As `datasets.Dataset.save_to_disk` leaves it."""
    ipc = pytest.importorskip("pyarrow.ipc")
    folder.mkdir(parents=True)
    names, start = [], 0
    for number, count in enumerate(counts):
        name = f"data-{number:05}-of-{len(counts):05}.arrow"
        table = _table(count, start)
        with ipc.new_stream(str(folder / name), table.schema) as writer:
            writer.write_table(table)
        names.append({"filename": name})
        start += count
    (folder / "state.json").write_text(json.dumps({"_data_files": names, "_split": "train"}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    _save(tmp_path / "d" / "train", [3, 4])
    _save(tmp_path / "d" / "test", [2])
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert queries(open_records(tmp_path / "d")) == [f"q{n}" for n in range(7)]
    assert len(queries(open_records(tmp_path / "d" / "test"))) == 2
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["one", "two"]}')
    with pytest.raises(DatasetError, match=r"several splits: one, two"):
        open_records(tmp_path / "d")


def test_a_folder_of_parquet_files_gives_its_train_split(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "data").mkdir()
    for name, count, start in (("train-0", 3, 0), ("train-1", 2, 3), ("test-0", 9, 50)):
        parquet.write_table(_table(count, start), tmp_path / "data" / f"{name}.parquet")
    assert queries(open_records(tmp_path)) == [f"q{n}" for n in range(5)]
