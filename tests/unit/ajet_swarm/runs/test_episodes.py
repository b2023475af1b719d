"""Running lists of episodes."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.protocol.errors import SwarmError, WrongUse
from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput
from ajet_swarm.runs.episodes import (
    Progress,
    rollout,
    run_episodes,
    run_episodes_until_all_complete,
)
from ajet_swarm.runs.executors import Retry, retry_with_backoff
from ajet_swarm.runs.record import RunRecord
from tests.support.scripted.threaded_swarm import threaded_swarm

QUICK = Retry(tries=3, first=0.001, most=0.002)


def tasks(groups: int, repeats: int = 1) -> list[Task]:
    return [Task(task_id=f"t{n}") for n in range(groups) for _ in range(repeats)]


def test_results_are_in_order_with_the_failures() -> None:
    def run(task: Task) -> str:
        if task.task_id == "t2":
            raise ValueError("no")
        return task.task_id

    done = run_episodes(tasks(5), run, retry=QUICK, max_workers=3)
    assert [outcome.value for outcome in done] == ["t0", "t1", None, "t3", "t4"]
    assert [outcome.ok for outcome in done] == [True, True, False, True, True]
    assert [outcome.tries for outcome in done] == [1, 1, 3, 1, 1]
    assert str(done[2].error) == "no"


def test_a_failure_is_tried_again() -> None:
    left = {"t0": 2, "t1": 0}
    lock = threading.Lock()

    def run(task: Task) -> int:
        with lock:
            left[task.task_id] -= 1
            if left[task.task_id] >= 0:
                raise ValueError("not yet")
        return 7

    done = run_episodes(tasks(2), run, retry=QUICK)
    assert [(outcome.value, outcome.tries) for outcome in done] == [(7, 3), (7, 1)]


def test_pauses_grow_up_to_a_bound() -> None:
    retry = Retry(first=1, most=8)
    for failures, most in ((1, 1), (2, 2), (3, 4), (4, 8), (50, 8)):
        assert most / 2 <= retry.pause(failures) <= most


def test_agentjets_decorator_tries_again_and_raises_the_last() -> None:
    class Agent:
        tries = 4

        def __init__(self) -> None:
            self.done = 0
            self.pauses: list[int] = []

        def work(self, needed: int) -> int:
            self.done += 1
            if self.done < needed:
                raise ValueError(f"try {self.done}")
            return self.done

    agent = Agent()

    def pause(failures: int) -> float:
        agent.pauses.append(failures)
        return 0.0

    again = retry_with_backoff(max_retry=2, backoff_fn=pause)(agent.work)
    assert again(2) == 2
    agent.done = 0
    with pytest.raises(ValueError, match="try 2"):
        again(9)
    by_self = retry_with_backoff(backoff_fn=pause, max_retry_attr="tries")(Agent.work)
    agent.done, agent.pauses = 0, []
    assert by_self(agent, 4) == 4
    assert agent.pauses == [0, 1, 2]


def test_wrong_use_is_not_tried_again() -> None:
    from ajet_swarm.job.tree import JobError

    def run(_: Task) -> None:
        raise JobError("no job")

    assert run_episodes(tasks(1), run)[0].tries == 1


def test_retries_follow_agentjets_decorator() -> None:
    left = [2]

    def run(task: int) -> int:
        if task == 1 and left[0]:
            left[0] -= 1
            raise ValueError("again")
        return task * 2

    retry = Retry(tries=None, first=0.001)
    assert run_episodes_until_all_complete([1, 2, 3], run, retry=retry) == [2, 4, 6]

    def fail(task: int) -> int:
        return 6 // task

    done = run_episodes_until_all_complete([1, 0, 3], func=fail, auto_retry=False)
    assert (done[0], done[2]) == (6, 2)
    assert isinstance(done[1], ZeroDivisionError)
    assert run_episodes_until_all_complete([], fail) == []


def test_groups_are_bounded() -> None:
    lock = threading.Lock()
    running: list[str] = []
    group_counts: list[int] = []
    gate = threading.Barrier(2, timeout=60)

    def run(task: Task) -> None:
        with lock:
            running.append(task.task_id)
            group_counts.append(len(set(running)))
        gate.wait()
        with lock:
            running.remove(task.task_id)

    run_episodes(tasks(6, 2), run, max_workers=8, max_groups=2)
    assert max(group_counts) == 2
    group_counts.clear()


def test_progress_is_reported() -> None:
    progress: list[Progress] = []
    run_episodes(tasks(4), lambda task: task.task_id, progress=progress.append)
    assert [report.done for report in progress] == [1, 2, 3, 4]
    assert progress[-1].total == 4
    assert str(progress[-1]).startswith("4/4 episodes, 0 running")


def test_a_run_continues_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    ran: list[str] = []

    class Killed(BaseException):
        pass

    def run(task: Task) -> float:
        if len(ran) == 3:
            raise Killed
        ran.append(task.task_id)
        return len(ran) / 10

    todo = tasks(3, 2)
    with RunRecord(path) as record, pytest.raises(Killed):
        run_episodes(todo, run, max_workers=1, record=record)
    with path.open("ab") as file:
        file.write(b'{"task": "t2", "val')  # cut by the kill
    with RunRecord(path) as record:
        assert record.count == 3
        again: list[str] = []
        progress: list[Progress] = []

        def rest(task: Task) -> float:
            again.append(task.task_id)
            return 0.9

        done = run_episodes(todo, rest, max_workers=1, record=record, progress=progress.append)
    assert again == ["t1", "t2", "t2"]
    assert [outcome.value for outcome in done] == [0.1, 0.2, 0.3, 0.9, 0.9, 0.9]
    assert [outcome.tries for outcome in done] == [0, 0, 0, 1, 1, 1]
    assert (progress[0].done, progress[0].resumed) == (4, 3)
    with RunRecord(path) as record:
        assert record.count == 6


def test_an_invalid_record_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"task": "a", "value": 1}) + "\nhello\n")
    with pytest.raises(SwarmError, match=r"run\.jsonl:2"):
        RunRecord(path)
    with pytest.raises(SwarmError, match="cannot be used"):
        RunRecord(tmp_path)
    with (
        RunRecord(tmp_path / "x") as record,
        pytest.raises(SwarmError, match="without a task_id"),
    ):
        run_episodes([Task()], lambda task: 1, record=record)


def test_an_agent_as_a_rollout() -> None:
    def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> WorkflowOutput | float:
        if task.task_id == "t1":
            raise ValueError("the agent fails")
        return WorkflowOutput(reward=0.5) if api.base_url else 0.0

    with threaded_swarm() as swarm, SwarmClient(swarm.url) as client:
        done = run_episodes(tasks(3), rollout(client, agent), retry=QUICK)
        assert [outcome.value for outcome in done] == [0.5, None, 0.5]
        assert not swarm.server.claimed()
        assert len(swarm.server.aborts) == 3


LOOP: dict[str, object] = {}
LOOP["itself"] = LOOP


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        None,
        [1.0],
        "half",
        {"reward": 1.0},
        WorkflowOutput(reward=1.0, metadata={"it": object()}),
        WorkflowOutput(reward=1.0, metadata=LOOP),
    ],
    ids=["nan", "none", "list", "text", "dict", "no JSON", "endless"],
)
def test_invalid_outputs_are_not_retried_for_ever(value: Any) -> None:
    with threaded_swarm() as swarm, SwarmClient(swarm.url) as client:
        run = rollout(client, lambda task, api: value)
        (done,) = run_episodes([Task(task_id="t")], run, retry=Retry(tries=None))
        assert done.tries == 1
        assert isinstance(done.error, WrongUse)
        assert not swarm.server.claimed()
        assert not swarm.server.rewards


def test_an_invalid_claim_and_a_closed_client_are_not_retried_for_ever() -> None:
    with threaded_swarm() as swarm:
        with SwarmClient(swarm.url) as client:
            run = rollout(client, lambda task, api: 1.0, discard_episode_timeout=-1)
            (wrong,) = run_episodes([Task(task_id="t")], run, retry=Retry(tries=None))
        (closed,) = run_episodes(
            [Task(task_id="t")], rollout(client, lambda task, api: 1.0), retry=Retry(tries=None)
        )
    assert "discard_episode_timeout is -1" in str(wrong.error)
    assert "this client is closed" in str(closed.error)


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


@pytest.mark.parametrize("tasks", [(task for task in TASKS), "ab", {"a": 1}, None, 3])
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
    assert [outcome.ok for outcome in again] == [True] * len(values)
    assert [outcome.value for outcome in again] == [
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
