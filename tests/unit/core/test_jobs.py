"""The jobs that come with the program, and the differences of two jobs."""

from typing import Any

import pytest

from ajet_swarm.job.schema import (
    BATCH,
    EPOCHS,
    GPUS,
    KL,
    LEARNING_RATE,
    MODEL,
    NODES,
    REPEAT,
    STOP_RULE,
    TEMPERATURE,
)
from ajet_swarm.job.server import for_server
from ajet_swarm.job.tree import Job, check_job, dump_job, get, put
from core.jobs import (
    MISSING,
    PRESETS,
    Change,
    changes,
    default_job,
    hand_job,
    preset_job,
    server_hand_job,
    server_job,
    votes_text,
)
from core.settings import EngineSettings
from engine.server.job import parse_job
from engine.torch.recipe import recipe


def test_numpy_has_the_jobs_of_the_shipped_policy() -> None:
    assert preset_job("default", EngineSettings()) == default_job()
    assert preset_job("hand", EngineSettings()) == hand_job()


@pytest.mark.parametrize(("preset", "tasks"), zip(PRESETS, (4, 1), strict=True))
def test_the_jobs_of_torch_start_an_agentjet_server_as_well(preset: str, tasks: int) -> None:
    job = preset_job(preset, EngineSettings(backend="torch", model="org/name"))
    assert get(job, BATCH) == tasks
    assert "org/name" in for_server(dump_job(job)).text
    read = parse_job(dump_job(job), recipe=recipe(full=False))
    assert read.hyper == recipe(full=False)
    assert (read.model_path, read.batch_size, read.num_repeat) == ("org/name", tasks, 4)


def test_without_a_model_the_job_names_none() -> None:
    job = preset_job("default", EngineSettings(backend="torch"))
    assert get(job, MODEL) is None
    assert parse_job(dump_job(job)).model_path == ""


def test_the_default_job() -> None:
    job = default_job()
    assert get(job, BATCH) == 4
    assert get(job, REPEAT) == 4
    assert get(job, LEARNING_RATE) == 5e-4
    assert get(job, EPOCHS) == 2
    assert get(job, KL) == 0.1
    assert get(job, TEMPERATURE) == 1.0
    assert get(job, STOP_RULE) == "rollout_until_finish_enough_tasks"
    assert get(job, "ajet.enable_swarm_mode") is True


def test_the_job_for_rating_by_hand_differs_in_two_values() -> None:
    job, plain = hand_job("m"), default_job("m")
    assert (get(job, BATCH), get(job, LEARNING_RATE)) == (1, 8e-4)
    put(job, BATCH, 4)
    put(job, LEARNING_RATE, 5e-4)
    assert job == plain


def test_jobs_are_not_shared() -> None:
    put(default_job(), BATCH, 99)
    assert get(default_job(), BATCH) == 4


def test_changes_of_two_jobs() -> None:
    before, after = default_job(), hand_job()
    put(before, "ajet.extra", [1])
    put(after, "ajet.new", None)
    result = changes(before, after)
    assert [(item.path, item.before, item.after) for item in result] == [
        (BATCH, 4, 1),
        (LEARNING_RATE, 5e-4, 8e-4),
        ("ajet.new", MISSING, None),
        ("ajet.extra", [1], MISSING),
    ]
    assert changes({"a": 1}, {"a": 1.0}) == []
    assert changes({"a": 1}, {"a": True}) == [Change("a", 1, True)]


@pytest.mark.parametrize(("gpus", "nodes", "tasks"), [(8, 1, 2), (4, 1, 1), (1, 1, 1), (6, 2, 3)])
def test_the_job_for_rating_has_four_answers_and_as_few_tasks_as_possible(
    gpus: int, nodes: int, tasks: int
) -> None:
    like: Job = {}
    put(like, GPUS, gpus)
    put(like, NODES, nodes)
    job = server_hand_job("m", like)
    assert (get(job, BATCH), get(job, REPEAT), get(job, GPUS)) == (tasks, 4, gpus)
    assert for_server(dump_job(job)).added
    assert votes_text(job) == (
        f"{tasks} votes make one update" if tasks > 1 else "each vote makes one update"
    )


@pytest.mark.parametrize("job", [server_job("m"), server_hand_job("m")])
def test_the_presets_leave_training_to_the_server(job: dict[str, Any]) -> None:
    for path in (LEARNING_RATE, KL, "ajet.trainer_common.ppo_epochs", "ajet.rollout.temperature"):
        assert get(job, path) is None
    assert get(job, BATCH) in (None, 2)
    assert not check_job(dump_job(job)).notices
