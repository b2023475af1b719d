"""Task readers."""

import json
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

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
    assert sorted(one.task_id for one in jsonl(path).get_training_tasks()) == ["7", "a", "task_1"]


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
        one.task_id
        for one in islice(HuggingFaceTaskReader(repo, seed=1).generate_training_tasks(), 20)
    ]
    again = [
        one.task_id
        for one in islice(HuggingFaceTaskReader(repo, seed=1).generate_training_tasks(), 20)
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

    assert [one.task_id for one in Lists().generate_training_tasks()] == ["a"]
    assert [one.task_id for one in Streams().get_training_tasks()] == ["b"]
    with pytest.raises(DatasetError, match="no validation tasks"):
        Lists().generate_validation_tasks()


def test_a_task_from_a_dict() -> None:
    value = {"main_query": "q", "task_id": "1", "env_type": "", "metadata": {}, "init_messages": []}
    assert dict_to_ajet_task(value).model_dump() == value
    with pytest.raises(DatasetError, match="`env_type` is missing"):
        dict_to_ajet_task({"main_query": "q", "task_id": "1"})
    with pytest.raises(SwarmError, match="`metadata` is a str"):
        Task(metadata="x")  # type: ignore[arg-type]  # on purpose
