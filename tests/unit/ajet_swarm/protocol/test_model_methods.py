"""Tasks, outputs and a server's answers have the methods of AgentJet's models."""

import json
import logging

import numpy as np
import pytest

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EpisodeRecord, PoolInfo, RunningEpisode


def test_a_task_is_copied_and_written_out() -> None:
    task = Task(main_query="q", task_id="t", metadata={"rows": [1]})
    shallow, deep = task.model_copy(update={"task_id": "u"}), task.copy(deep=True)
    assert (task.task_id, shallow.task_id) == ("t", "u")
    assert shallow.metadata is task.metadata
    assert deep == task
    assert deep.metadata["rows"] is not task.metadata["rows"]
    assert task.dict() == task.model_dump() == Task.model_validate(task.dict()).dict()
    assert Task.model_validate_json(task.model_dump_json()) == task
    assert Task.model_validate(task) is task


def test_an_output_is_copied_and_written_out() -> None:
    output = WorkflowOutput(reward=0.5, log_metrics={"x": np.float32(0.5)})
    assert json.loads(output.model_dump_json())["log_metrics"] == {"x": 0.5}
    assert output.model_copy(update={"reward": 1.0}).reward == 1.0
    output.metadata["lock"] = object()
    with pytest.raises(SwarmError, match="not JSON: a object"):
        output.model_dump_json()


def test_two_instances_do_not_share_default_values() -> None:
    Task().metadata["a"] = 1
    WorkflowOutput().metadata["a"] = 1
    assert Task().metadata == WorkflowOutput().metadata == {}


def test_unknown_fields_are_ignored_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            task = Task(main_query="q", main_qery="typed wrong")  # type: ignore[call-arg]
        output = WorkflowOutput(reward=1, rewards=2)  # type: ignore[call-arg]  # on purpose
        assert output == WorkflowOutput(reward=1)
    assert task == Task(main_query="q")
    assert caplog.text.count("a Task has no `main_qery`: ignored. It has main_query") == 1
    assert "WorkflowOutput has no `rewards`" in caplog.text


@pytest.mark.parametrize("value", [3, "text", [("main_query", "q")], None])
def test_a_value_that_is_not_a_model_is_named(value: object) -> None:
    with pytest.raises(SwarmError, match="is not a Task"):
        Task.model_validate(value)
    with pytest.raises(SwarmError, match="not JSON"):
        Task.model_validate_json("{")
    with pytest.raises(SwarmError, match="`metadata` is a str"):
        Task.model_validate({"metadata": "x"})


def test_a_server_answer_can_be_used_as_a_dict() -> None:
    running = RunningEpisode(client_uuid="me", llm_call_count="3")
    assert running["client_uuid"] == running.get("client_uuid") == "me"
    assert running.get("nothing", 7) == 7
    assert "client_uuid" in running
    assert "calls" not in running, "as attributes only"
    assert dict(running) == dict(running.items()) == running.model_dump()
    with pytest.raises(KeyError):
        running["calls"]
    pool = PoolInfo(running_episode_details={"u": running})
    assert json.loads(pool.model_dump_json())["running_episode_details"]["u"]["client_uuid"] == "me"
    assert EpisodeRecord(episode_uuid="u")["episode_uuid"] == "u"
