"""What a run checks before it begins, and what a record keeps of values."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.runs.episodes import run_episodes, run_episodes_until_all_complete
from ajet_swarm.runs.record import RunRecord

TASKS = [Task(task_id="a"), Task(task_id="b"), Task(task_id="b")]


def never(task: Task) -> None:
    pytest.fail("nothing runs")


@pytest.mark.parametrize(
    "values", [{name: n} for name in ("max_workers", "max_groups") for n in (0, -1, 1.5, "2", True)]
)
def test_an_invalid_limit_is_named(values: dict[str, Any]) -> None:
    name, value = next(iter(values.items()))
    with pytest.raises(SwarmError, match=rf"{name} is {value!r}.*at least 1"):
        run_episodes(TASKS, never, **values)


@pytest.mark.parametrize("tasks", [(one for one in TASKS), "ab", {"a": 1}, None, 3])
def test_tasks_that_are_not_a_list_are_named(tasks: Any) -> None:
    for run in (run_episodes, run_episodes_until_all_complete):
        with pytest.raises(SwarmError, match=r"not a list.*list\(\.\.\.\)"):
            run(tasks, never)


def test_a_value_that_is_not_a_function_is_named() -> None:
    with pytest.raises(SwarmError, match="func is a NoneType"):
        run_episodes(TASKS, None)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(SwarmError, match="max_workers is -1"):
        run_episodes_until_all_complete(TASKS, never, max_workers=-1)
    assert not run_episodes([], never)
    assert not run_episodes_until_all_complete([], never)


def test_values_come_back_as_json_has_them(tmp_path: Path) -> None:
    values = [np.float32(0.5), WorkflowOutput(reward=1.0), (1, np.int64(2)), None, {"a": [True]}]
    tasks = [Task(task_id=f"t{n}") for n in range(len(values))]
    path = tmp_path / "run.jsonl"
    with RunRecord(path) as record:
        run_episodes(tasks, lambda task: values[int(task.task_id[1:])], record=record)
    with RunRecord(path) as record:
        again = run_episodes(tasks, never, record=record)
    assert [one.ok for one in again] == [True] * len(values)
    assert [one.value for one in again] == [
        0.5,
        {"reward": 1.0, "is_success": None, "metadata": {}, "log_metrics": {}},
        [1, 2],
        None,
        {"a": [True]},
    ]


def test_a_value_that_cannot_be_stored_ends_the_run(tmp_path: Path) -> None:
    with (
        RunRecord(tmp_path / "run.jsonl") as record,
        pytest.raises(SwarmError, match=r"a Event cannot be stored.*Return numbers, text"),
    ):
        run_episodes(TASKS, lambda _: threading.Event(), record=record)
    with RunRecord(tmp_path / "run.jsonl") as record:
        assert record.count > 0  # what was trained is not run once more
