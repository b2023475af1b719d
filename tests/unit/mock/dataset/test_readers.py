"""Readers of each kind of dataset: what they find, what is broken, what they cost."""

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from mock.dataset import Dataset, open_dataset, open_reader
from mock.dataset.columns import DatasetError
from mock.dataset.interface import LINE_LIMIT
from mock.dataset.rows import BadRow, Row, RowError
from mock.dataset.shuffle import Shuffle, order

pytestmark = pytest.mark.slow


def read_all(reader: Dataset) -> list[tuple[int, dict[str, Any] | str]]:
    """Line and record, or cause, of everything."""
    while reader.scan():
        pass
    pairs: list[tuple[int, dict[str, Any] | str]] = []
    for position in range(reader.row_count):
        try:
            pairs.append((reader.line(position), reader.record(position)))
        except RowError as error:
            pairs.append((reader.line(position), str(error)))
    reader.close()
    return pairs


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# --- CSV ----------------------------------------------------------------------------------------


def test_csv_with_quotes_newlines_and_blank_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.csv",
        '\ufeffquery,answer\r\n\r\n"a, ""b""\nc",1\r\nplain 5" pipe,\r\n"last",2',
    )
    assert read_all(open_reader(path)) == [
        (3, {"query": 'a, "b"\nc', "answer": "1"}),
        (5, {"query": 'plain 5" pipe'}),
        (6, {"query": "last", "answer": "2"}),
    ]


@pytest.mark.parametrize(("ending", "sign"), [("csv", ";"), ("csv", "|"), ("tsv", "\t")])
def test_csv_with_other_signs(tmp_path: Path, ending: str, sign: str) -> None:
    path = write(tmp_path / f"d.{ending}", f"query{sign}answer\nx{sign}y\n")
    assert read_all(open_reader(path)) == [(2, {"query": "x", "answer": "y"})]


def test_broken_csv_rows_do_not_affect_other_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.csv",
        b'query,answer\na,1\n"open,2\nb,3,4\n\xff\xfe,5\nc\x00,6\n"d",7\n"x"y,8\ne,9\n',
    )
    result = read_all(open_reader(path))
    assert [line for line, _ in result] == [2, 3, 4, 5, 6, 7, 8, 9]
    good = [value["query"] for _, value in result if isinstance(value, dict)]
    assert good == ["a", "d", "e"]
    causes = [value for _, value in result if isinstance(value, str)]
    for cause, words in zip(
        causes, ["quote", "3 values for 2", "not UTF-8", "NUL", "not CSV"], strict=True
    ):
        assert words in cause


def test_a_csv_that_is_utf_16_or_names_a_column_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="UTF-16"):
        open_reader(write(tmp_path / "a.csv", "query\nx\n".encode("utf-16")))
    with pytest.raises(DatasetError, match="two columns are called `q`"):
        open_reader(write(tmp_path / "b.csv", "q,q\nx,y\n"))
    with pytest.raises(DatasetError, match=r"c\.csv:1: not UTF-8 at byte 1"):
        open_reader(write(tmp_path / "c.csv", b"\xe9,q\nx,y\n"))


# --- JSON ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["{}", '{{"version": 1, "data": {}, "more": [[1]]}}'])
def test_a_json_list_is_cut_at_its_commas(tmp_path: Path, inside: str) -> None:
    rows = [
        {"query": 'a ] } , " \\ é'},
        {"query": "b", "more": [{"x": [1, 2]}, "]"]},
        {"query": "c"},
    ]
    path = write(tmp_path / "d.json", inside.format(json.dumps(rows, indent=1)))
    assert [value for _, value in read_all(open_reader(path))] == rows


def test_json_elements_know_their_numbers_and_fail_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.json",
        '[\n {"query": "a"},\n {"query": nonsense},\n\n 7,\n{"query":\n"b"}\n]\n',
    )
    reader = open_reader(path)
    assert reader.place == "element"
    result = read_all(reader)
    assert [number for number, _ in result] == [1, 2, 3, 4]
    assert result[0][1] == {"query": "a"}
    assert "not JSON" in str(result[1][1])
    assert "not an object" in str(result[2][1])
    assert result[3][1] == {"query": "b"}


def test_a_json_list_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mock.dataset.json_document._CHUNK", 3)
    rows = [{"query": f'q "{number}" \\ , ]'} for number in range(20)]
    path = write(tmp_path / "d.json", json.dumps(rows))
    assert [value for _, value in read_all(open_reader(path))] == rows


def test_a_json_list_that_is_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", '[{"query": "a"}, {"query": "b"')
    result = read_all(open_reader(path))
    assert result[0][1] == {"query": "a"}
    assert "not JSON" in str(result[1][1])


def test_a_file_called_json_may_hold_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", '{"query": "a", "x": [1]}\n{"query": "b"}\n')
    assert [value for _, value in read_all(open_reader(path))] == [
        {"query": "a", "x": [1]},
        {"query": "b"},
    ]
    path = write(tmp_path / "e.json", '{"data": [{"query": "a"}]}\n')
    assert [value for _, value in read_all(open_reader(path))] == [{"query": "a"}]


@pytest.mark.parametrize("data", [b"query,answer\n", b"\x00\x01", "[1]".encode("utf-16")])
def test_a_file_that_is_not_json_is_named_in_the_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DatasetError, match=r"d\.json"):
        open_dataset(write(tmp_path / "d.json", data))


# --- lines --------------------------------------------------------------------------------------


def test_nul_bytes_and_huge_lines_are_named(tmp_path: Path) -> None:
    huge = b'{"query": "' + b"x" * (LINE_LIMIT + 5) + b'"}'
    path = write(tmp_path / "d.jsonl", b'{"query": "a\x00"}\n' + huge + b'\n{"query": "b"}\n')
    result = read_all(open_reader(path))
    assert "NUL byte at byte 13" in str(result[0][1])
    assert "longer than 16 MB" in str(result[1][1])
    assert result[2] == (3, {"query": "b"})


def test_a_large_file_is_not_loaded_into_memory(tmp_path: Path) -> None:
    """50 MB of rows: found by walking once, and never more than a few of them in memory."""
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        for number in range(50_000):
            file.write(b'{"query": "question %06d", "pad": "%s"}\n' % (number, b"x" * 1_000))
    assert path.stat().st_size > 50_000_000
    tracemalloc.start()
    try:
        with open_dataset(path, scratch=tmp_path) as dataset:
            assert tracemalloc.get_traced_memory()[1] < 4_000_000, (
                "it was opened without reading it"
            )
            while dataset.scan(10_000):
                pass
            assert dataset.row_count == 50_000
            for position in (49_999, 3, 25_000):
                row = dataset.row(position)
                assert isinstance(row, Row)
                assert row.query == f"question {position:06d}"
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


def test_a_missing_file_a_pipe_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.csv", tmp_path, Path("/dev/null")):
        with pytest.raises(DatasetError, match=str(path)):
            open_dataset(path)


# --- tables -------------------------------------------------------------------------------------


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path / "d.parquet", b"PAR1 and so on")
    with pytest.raises(DatasetError, match=r"d\.parquet.*pyarrow.*ajet-console\[data\]"):
        open_dataset(path)


def test_pyarrow_is_only_imported_for_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with open_dataset(write(tmp_path / "d.jsonl", '{"query": "a"}\n')) as dataset:
        assert isinstance(dataset.row(0), Row)


def test_a_parquet_name_with_other_content_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a Parquet file"):
        open_dataset(write(tmp_path / "d.parquet", "query\n"))


def _table(count: int, start: int = 0) -> Any:
    arrow = pytest.importorskip("pyarrow")
    numbers = range(start, start + count)
    return arrow.table(
        {
            "question": [f"q{number}" for number in numbers],
            "answer": [str(number) for number in numbers],
        }
    )


def test_parquet_is_read_by_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("mock.dataset.tables.WINDOW", 16)
    monkeypatch.setattr("mock.dataset.tables._BATCH", 4)
    parquet.write_table(_table(100), tmp_path / "d.parquet", row_group_size=40)
    with open_dataset(tmp_path / "d.parquet") as dataset:
        assert dataset.whole
        assert dataset.row_count == 100
        assert list(dataset.blocks()) == [16, 16, 8, 16, 16, 8, 16, 4]
        positions = list(dataset.order("1", 7))
        assert sorted(positions) == list(range(100))
        for position in [*range(100), *positions]:
            row = dataset.row(position)
            assert isinstance(row, Row)
            assert (row.query, row.reference, row.line) == (
                f"q{position}",
                f"{position}",
                position + 1,
            )


def test_a_parquet_file_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(_table(100), tmp_path / "d.parquet")
    data = (tmp_path / "d.parquet").read_bytes()
    with pytest.raises(DatasetError, match=r"d\.parquet.*not a Parquet file"):
        open_dataset(write(tmp_path / "d.parquet", data[: len(data) // 2]))


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
    with open_dataset(tmp_path / "d") as dataset:
        rows = [dataset.row(position) for position in range(dataset.row_count)]
        assert [row.query for row in rows if isinstance(row, Row)] == [f"q{n}" for n in range(7)]
        assert not [row for row in rows if isinstance(row, BadRow)]
    with open_dataset(tmp_path / "d" / "test") as dataset:
        assert dataset.row_count == 2
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["one", "two"]}')
    with pytest.raises(DatasetError, match=r"several splits: one, two"):
        open_dataset(tmp_path / "d")


def test_a_folder_of_parquet_files_gives_its_train_split(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "data").mkdir()
    for name, count, start in (("train-0", 3, 0), ("train-1", 2, 3), ("test-0", 9, 50)):
        parquet.write_table(_table(count, start), tmp_path / "data" / f"{name}.parquet")
    with open_dataset(tmp_path) as dataset:
        assert [dataset.row(n).query for n in range(dataset.row_count)] == [  # type: ignore[union-attr] # all are rows
            f"q{n}" for n in range(5)
        ]


# --- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1_000])
def test_a_shuffle_is_a_permutation(size: int) -> None:
    shuffle = Shuffle(size, "seed")
    assert sorted(shuffle[place] for place in range(size)) == list(range(size))


def test_a_shuffle_moves_everything_everywhere() -> None:
    firsts = [Shuffle(10, f"seed {seed}")[0] for seed in range(1_000)]
    counts = [firsts.count(place) for place in range(10)]
    assert min(counts) > 60
    assert max(counts) < 140


def test_blocks_are_shuffled_one_by_one() -> None:
    result = list(order([4, 3, 5], "s"))
    assert sorted(result) == list(range(12))
    sides = [0 if one < 4 else 1 if one < 7 else 2 for one in result]
    assert len({at for at in range(1, 12) if sides[at] != sides[at - 1]}) == 2
