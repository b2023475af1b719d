"""Task readers under AgentJet's names: `RouterTaskReader(reader_type=..., reader_config=...)`.

`generate_*` reads lazily; `get_*` reads all tasks and shuffles them, as in AgentJet.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from ajet_swarm.data.files import LocatedRow, Row, rows_of, split_files
from ajet_swarm.protocol.errors import DatasetError, SwarmError
from ajet_swarm.protocol.models import Task

DUMMIES = 1000
"""Number of tasks of `RandomDummyTaskReader`."""
SHUFFLED = 10_000
"""Rows in the shuffle buffer of a stream; a smaller dataset is shuffled completely."""
NOT_DEFINED = "[not defined]"


@dataclass(slots=True)
class HuggingfaceDatRepo:
    """Location of a dataset: its directory, or one of its Parquet or JSON files.

    Attributes:
        dataset_path: Directory (as a download from the hub leaves it) or file.
        dataset_name: Its configuration: a folder in it.
        training_split: `train`, `test`, ...
        validation_split: Likewise.
        http_proxy_address: Ignored, since nothing is downloaded.
    """

    dataset_path: str = "gsm8k"
    dataset_name: str | None = None
    training_split: str = "train"
    validation_split: str = "validation"
    http_proxy_address: str = ""


@dataclass(slots=True)
class JsonlTrainingFp:
    """File of tasks, one JSON object a line."""

    file_path: str = ""


JsonlValidationFp = JsonlTrainingFp
"""File of validation tasks."""


@dataclass(slots=True)
class JsonlDatasetFile:
    """Files of a dataset in JSON lines."""

    training: JsonlTrainingFp = field(default_factory=JsonlTrainingFp)
    validation: JsonlTrainingFp = field(default_factory=JsonlTrainingFp)


@dataclass(slots=True)
class AjetTaskReader:
    """Configuration of the readers; each uses the field of its own type."""

    type: str = "huggingface_dat_repo"
    huggingface_dat_repo: HuggingfaceDatRepo = field(default_factory=HuggingfaceDatRepo)
    jsonl_dataset_file: JsonlDatasetFile = field(default_factory=JsonlDatasetFile)


class BaseTaskReader:
    """Base of task readers; a subclass defines `generate_*`, or AgentJet's `get_*`."""

    def __init__(self, reader_config: AjetTaskReader | None = None) -> None:
        self.reader_config = reader_config or AjetTaskReader()

    def generate_training_tasks(self) -> Iterator[Task]:
        """Yield the training tasks, read lazily.

        Raises:
            DatasetError: there are none, or a row is invalid; the text names file, line and field.
        """
        if type(self).get_training_tasks is BaseTaskReader.get_training_tasks:
            return self._tasks("training")
        return iter(self.get_training_tasks())

    def generate_validation_tasks(self) -> Iterator[Task]:
        """Yield the validation tasks, read lazily.

        Raises:
            DatasetError: there are none, or a row is invalid; the text names file, line and field.
        """
        if type(self).get_validation_tasks is BaseTaskReader.get_validation_tasks:
            return self._tasks("validation")
        return iter(self.get_validation_tasks())

    def get_training_tasks(self) -> list[Task]:
        """Return all training tasks, shuffled. Raises what `generate_training_tasks` raises."""
        return _shuffled(self.generate_training_tasks())

    def get_validation_tasks(self) -> list[Task]:
        """Return all validation tasks, shuffled. Raises what `generate_validation_tasks` raises."""
        return _shuffled(self.generate_validation_tasks())

    def _tasks(self, which: str) -> Iterator[Task]:
        """Yield the `training` or the `validation` tasks; each reader here defines this alone."""
        raise DatasetError(f"this reader has no {which} tasks", type(self).__name__)


class JsonlTaskReader(BaseTaskReader):
    """Reader of tasks from JSON lines, in the order of the file.

    Defaults: `task_id` is `task_<n>`, `main_query` is "[not defined]", and `metadata` is the row.
    """

    def _tasks(self, which: str) -> Iterator[Task]:
        file = getattr(self.reader_config.jsonl_dataset_file, which).file_path
        if not file:
            raise DatasetError(f"no file for {which}", f"jsonl_dataset_file.{which}.file_path")
        empty = True
        for number, (where, row) in enumerate(rows_of(Path(file))):
            empty = False
            filled = {"task_id": f"task_{number}", "main_query": NOT_DEFINED, **row}
            filled.setdefault("metadata", dict(row))
            yield task_of(filled, where)
        if empty:
            raise DatasetError("there is no row in it", file)


class HuggingFaceTaskReader(BaseTaskReader):
    """Reader of tasks from a Hugging Face directory, shuffled within 10,000 rows.

    `task_id` is a row's index, `main_query` its `main_query` or `question`, `metadata` the row.

    Args:
        reader_config: Configuration; only `huggingface_dat_repo` is used.
        seed: Seed of the shuffle; None for a different order each time.
    """

    def __init__(
        self, reader_config: AjetTaskReader | None = None, seed: int | None = None
    ) -> None:
        super().__init__(reader_config)
        self.seed = seed

    def _tasks(self, which: str) -> Iterator[Task]:
        repo = self.reader_config.huggingface_dat_repo
        split = getattr(repo, f"{which}_split")
        path = Path(repo.dataset_path).expanduser()
        if not path.exists():
            raise DatasetError(
                "there is no such directory or file",
                str(path),
                "Download the dataset first: this reader downloads nothing",
            )
        files = [path] if path.is_file() else split_files(path, repo.dataset_name, split)
        rng = random.Random(self.seed)
        held: list[tuple[int, LocatedRow]] = []
        for row in enumerate(chain.from_iterable(map(rows_of, files))):
            held.append(row)
            if len(held) > SHUFFLED:
                at = rng.randrange(len(held))
                held[at], held[-1] = held[-1], held[at]
                yield _indexed(*held.pop())
        if not held:
            raise DatasetError(f"there is no row in split `{split}`", repo.dataset_path)
        rng.shuffle(held)
        for row in held:
            yield _indexed(*row)


class RandomDummyTaskReader(BaseTaskReader):
    """Reader of 1,000 numbered dummy tasks, always in the same order, for scripts with their own
    environment; the validation tasks are the same."""

    def _tasks(self, which: str) -> Iterator[Task]:
        numbers = list(range(DUMMIES))
        random.Random(42).shuffle(numbers)
        for number in numbers:
            yield Task(
                main_query=f"[dummy task @ {number}]",
                task_id=str(number),
                env_type="no_env",
                metadata={"random_number": number},
            )


_READERS: dict[str, type[BaseTaskReader]] = {
    "jsonl_dataset_file": JsonlTaskReader,
    "huggingface_dat_repo": HuggingFaceTaskReader,
    "random_dummy": RandomDummyTaskReader,
}
_SERVICES = frozenset({"env_service", "tracing", "data_generation", "deep_finance"})


class RouterTaskReader(BaseTaskReader):
    """Reader that is selected by name.

    Args:
        reader_type: `jsonl_dataset_file`, `huggingface_dat_repo` or `random_dummy`.
        reader_config: Configuration of that reader.

    Raises:
        SwarmError: there is no reader of that name.
    """

    def __init__(self, reader_type: str, reader_config: AjetTaskReader | None = None) -> None:
        super().__init__(reader_config)
        if reader_type not in _READERS:
            needs = " needs a service of AgentJet's" if reader_type in _SERVICES else ""
            raise SwarmError(
                f"reader_type {reader_type!r}{needs or ' is not known'}",
                "RouterTaskReader",
                "Use jsonl_dataset_file, huggingface_dat_repo or random_dummy",
            )
        self.task_reader = _READERS[reader_type](self.reader_config)

    def _tasks(self, which: str) -> Iterator[Task]:
        return self.task_reader._tasks(which)


def task_of(row: Row, where: str) -> Task:
    """Return the task in a row.

    Args:
        row: Fields of the task.
        where: Location of the row, for errors.

    Raises:
        DatasetError: a field has the wrong type; the text names it.
    """
    metadata = row.get("metadata")
    messages = row.get("init_messages") or []
    query = row.get("main_query")
    for name, value, kind in (
        ("main_query", query, str),
        ("init_messages", messages, list),
        ("metadata", metadata, dict),
    ):
        if not isinstance(value, kind):
            raise DatasetError(
                f"`{name}` is a {type(value).__name__}, not a {kind.__name__}", where
            )
    task_id = row.get("task_id")
    if isinstance(task_id, bool) or not isinstance(task_id, str | int) or task_id == "":
        raise DatasetError(f"`task_id` is {task_id!r:.80}", where, "Give a text or a number")
    return Task(
        main_query=str(query),
        init_messages=list(messages),
        task_id=str(task_id),
        env_type=str(row.get("env_type") or ""),
        metadata=dict(metadata or {}),
    )


def dict_to_ajet_task(task_dict: dict[str, Any]) -> Task:
    """Return the task in a dict that has all five fields.

    Raises:
        DatasetError: a field is missing or has the wrong type; the text names it.
    """
    for name in ("main_query", "task_id", "env_type", "metadata", "init_messages"):
        if name not in task_dict:
            raise DatasetError(f"`{name}` is missing", "task")
    return task_of(task_dict, "task")


def _indexed(index: int, located: LocatedRow) -> Task:
    where, row = located
    query = row.get("main_query", row.get("question"))
    if query is None:
        raise DatasetError(
            f"neither `main_query` nor `question`; there is {', '.join(row)}"[:400], where
        )
    return task_of({"main_query": query, "task_id": str(index), "metadata": dict(row)}, where)


def _shuffled(tasks: Iterator[Task]) -> list[Task]:
    shuffled = list(tasks)
    random.shuffle(shuffled)
    return shuffled
