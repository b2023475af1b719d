"""Data of a script: readers of each format, and records of tasks."""

import json
import sys
import tracemalloc
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.data.files import open_records
from ajet_swarm.data.readers import (
    AjetTaskReader,
    BaseTaskReader,
    HuggingfaceDatRepo,
    HuggingFaceTaskReader,
    JsonlDatasetFile,
    JsonlTrainingFp,
    RouterTaskReader,
    dict_to_ajet_task,
)
from ajet_swarm.data.records import LINE_LIMIT, Records, RowError
from ajet_swarm.protocol.errors import DatasetError, SwarmError
from ajet_swarm.protocol.models import Task


def jsonl(path: Path) -> RouterTaskReader:
    return RouterTaskReader(
        reader_type="jsonl_dataset_file",
        reader_config=AjetTaskReader(
            jsonl_dataset_file=JsonlDatasetFile(training=JsonlTrainingFp(file_path=str(path)))
        ),
    )


def hf(path: Path, **options: str) -> RouterTaskReader:
    repo = HuggingfaceDatRepo(dataset_path=str(path), **options)
    return RouterTaskReader("huggingface_dat_repo", AjetTaskReader(huggingface_dat_repo=repo))


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"task_id": "a", "main_query": "1+1?", "metadata": {"answer": "2"}},
        {"answer": 3},
        {"task_id": 7, "main_query": "q", "init_messages": [{"role": "user", "content": "x"}]},
    ]
    path.write_text("\n\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8-sig")
    tasks = list(jsonl(path).generate_training_tasks())
    assert [task.task_id for task in tasks] == ["a", "task_1", "7"]
    assert tasks[0].metadata == {"answer": "2"}
    assert tasks[1].main_query == "[not defined]"
    assert tasks[1].metadata == {"answer": 3}
    assert tasks[2].init_messages == [{"role": "user", "content": "x"}]
    assert sorted(task.task_id for task in jsonl(path).get_training_tasks()) == ["7", "a", "task_1"]


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("{broken", r"tasks\.jsonl:2: not JSON"),
        ("[1]", r"tasks\.jsonl:2: a list, not an object"),
        ('{"main_query": 5}', r"tasks\.jsonl:2: `main_query` is a int, not a str"),
        ('{"metadata": "x"}', r"tasks\.jsonl:2: `metadata` is a str"),
        ('{"task_id": null}', r"tasks\.jsonl:2: `task_id` is None"),
        ('{"init_messages": "x"}', r"tasks\.jsonl:2: `init_messages`"),
        ("[" * 100_000, r"tasks\.jsonl:2: "),
    ],
)
def test_a_broken_row_names_its_line_when_it_is_read(
    tmp_path: Path, line: str, result: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": "a"}\n' + line + "\n")
    tasks = jsonl(path).generate_training_tasks()
    assert next(tasks).task_id == "a", "read as it is asked for"
    with pytest.raises(DatasetError, match=result):
        next(tasks)


def test_files_that_are_not_datasets_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "x.csv").write_text("a\n")
    (tmp_path / "bytes.jsonl").write_bytes(b'{"a": "\xff\xfe"}\n')
    for name, value in (
        ("empty.jsonl", "no row"),
        ("gone.jsonl", "No such file"),
        ("x.csv", "no row"),
        ("bytes.jsonl", "not UTF-8"),
    ):
        with pytest.raises(DatasetError, match=value):
            list(jsonl(tmp_path / name).generate_training_tasks())
    with pytest.raises(DatasetError, match=r"validation\.file_path"):
        list(jsonl(tmp_path / "empty.jsonl").generate_validation_tasks())


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.Table.from_pylist(rows), path)


@pytest.mark.slow
def test_a_hugging_face_directory(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": f"q{n}", "answer": str(n)} for n in range(600)]
    _parquet(tmp_path / "main" / "train-00000-of-00002.parquet", rows[:300])
    _parquet(tmp_path / "main" / "train-00001-of-00002.parquet", rows[300:])
    _parquet(tmp_path / "main" / "test-00000-of-00001.parquet", rows[:2])
    reader = hf(tmp_path, dataset_name="main", validation_split="test")
    tasks = list(reader.generate_training_tasks())
    assert [task.task_id for task in tasks] != [str(n) for n in range(600)], "shuffled"
    by_id = {task.task_id: task for task in tasks}
    assert len(by_id) == 600
    assert by_id["417"].main_query == "q417"
    assert by_id["417"].metadata == {"question": "q417", "answer": "417"}
    assert len(list(reader.generate_validation_tasks())) == 2
    assert len(list(hf(tmp_path).generate_training_tasks())) == 600, "its only configuration"
    file = tmp_path / "main" / "test-00000-of-00001.parquet"
    assert len(list(hf(file).generate_training_tasks())) == 2
    with pytest.raises(DatasetError, match=r"no split `dev`; there is splits test, train"):
        list(hf(tmp_path / "main", training_split="dev").generate_training_tasks())


def test_other_forms_of_a_directory(tmp_path: Path) -> None:
    _parquet(tmp_path / "a" / "data" / "train-00000-of-00001.parquet", [{"main_query": "x"}])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "train.jsonl").write_text('{"question": "y"}\n')
    (tmp_path / "c" / "train").mkdir(parents=True)
    (tmp_path / "c" / "train" / "part.json").write_text('[{"question": "z"}]')
    (tmp_path / "b" / "test.json").write_text('{"question": "w"}\n{"question": "v"}\n')
    for name, query in (("a", "x"), ("b", "y"), ("c", "z")):
        tasks = list(hf(tmp_path / name).generate_training_tasks())
        assert [task.main_query for task in tasks] == [query]
    assert len(list(hf(tmp_path / "b", training_split="test").generate_training_tasks())) == 2


def test_a_directory_that_is_not_a_dataset_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="downloads nothing"):
        list(hf(tmp_path / "gone").generate_training_tasks())
    (tmp_path / "train.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DatasetError, match="not a Parquet file"):
        list(hf(tmp_path).generate_training_tasks())
    (tmp_path / "test.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(
        DatasetError, match=r"test\.jsonl:1: neither `main_query` nor `question`; there is prompt"
    ):
        list(hf(tmp_path, training_split="test").generate_training_tasks())


def test_a_long_stream_is_shuffled_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ajet_swarm.data import readers

    monkeypatch.setattr(readers, "SHUFFLED", 10)
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"question": str(n)}) + "\n" for n in range(100)) + "{bad")
    repo = AjetTaskReader(huggingface_dat_repo=HuggingfaceDatRepo(str(tmp_path)))
    first = [
        task.task_id
        for task in islice(HuggingFaceTaskReader(repo, seed=1).generate_training_tasks(), 20)
    ]
    again = [
        task.task_id
        for task in islice(HuggingFaceTaskReader(repo, seed=1).generate_training_tasks(), 20)
    ]
    assert first == again, "the broken last row has not been read"
    assert len(set(first)) == 20


def test_random_dummy() -> None:
    reader = RouterTaskReader(reader_type="random_dummy", reader_config=AjetTaskReader())
    tasks = list(reader.generate_training_tasks())
    assert len(tasks) == 1000
    assert tasks[0].main_query == f"[dummy task @ {tasks[0].task_id}]"
    assert tasks[0].metadata == {"random_number": int(tasks[0].task_id)}
    assert [t.task_id for t in tasks] == [t.task_id for t in reader.generate_training_tasks()]
    assert len({task.task_id for task in reader.get_validation_tasks()}) == 1000


def test_readers_of_services_are_named() -> None:
    with pytest.raises(SwarmError, match="needs a service of AgentJet's"):
        RouterTaskReader("env_service", AjetTaskReader())
    with pytest.raises(SwarmError, match="is not known"):
        RouterTaskReader("csv", AjetTaskReader())


def test_own_readers_of_either_kind() -> None:
    class Lists(BaseTaskReader):
        def get_training_tasks(self) -> list[Task]:
            return [Task(task_id="a")]

    class Streams(BaseTaskReader):
        def generate_training_tasks(self) -> Iterator[Task]:
            yield Task(task_id="b")

    assert [task.task_id for task in Lists().generate_training_tasks()] == ["a"]
    assert [task.task_id for task in Streams().get_training_tasks()] == ["b"]
    with pytest.raises(DatasetError, match="no validation tasks"):
        Lists().generate_validation_tasks()


def test_a_task_from_a_dict() -> None:
    value = {"main_query": "q", "task_id": "1", "env_type": "", "metadata": {}, "init_messages": []}
    assert dict_to_ajet_task(value).model_dump() == value
    with pytest.raises(DatasetError, match="`env_type` is missing"):
        dict_to_ajet_task({"main_query": "q", "task_id": "1"})
    with pytest.raises(SwarmError, match="`metadata` is a str"):
        Task(metadata="x")  # type: ignore[arg-type]  # on purpose


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_missing_file_a_pipe_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.csv", tmp_path, Path("/dev/null")):
        with pytest.raises(DatasetError, match=str(path)):
            open_records(path)


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_hugging_face_folder(tmp_path: Path) -> None:
    _save(tmp_path / "d" / "train", [3, 4])
    _save(tmp_path / "d" / "test", [2])
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert queries(open_records(tmp_path / "d")) == [f"q{n}" for n in range(7)]
    assert len(queries(open_records(tmp_path / "d" / "test"))) == 2
    (tmp_path / "d" / "dataset_dict.json").write_text('{"splits": ["one", "two"]}')
    with pytest.raises(DatasetError, match=r"several splits: one, two"):
        open_records(tmp_path / "d")


@pytest.mark.slow
def test_a_folder_of_parquet_files_gives_its_train_split(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "data").mkdir()
    for name, count, start in (("train-0", 3, 0), ("train-1", 2, 3), ("test-0", 9, 50)):
        parquet.write_table(_table(count, start), tmp_path / "data" / f"{name}.parquet")
    assert queries(open_records(tmp_path)) == [f"q{n}" for n in range(5)]
