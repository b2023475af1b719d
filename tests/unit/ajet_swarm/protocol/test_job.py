"""Jobs: what is sent to start a run, and the errors of a bad one."""

from typing import Any

import pytest
import yaml

from ajet_swarm.common.errors import UsageError
from ajet_swarm.protocol import job as module
from ajet_swarm.protocol.job import JobError, default_job, dump_job, get, hand_job, load_job, put


def test_the_default_job() -> None:
    job = default_job()
    assert get(job, module.BATCH) == 4
    assert get(job, module.REPEAT) == 4
    assert get(job, module.LEARNING_RATE) == 5e-4
    assert get(job, module.EPOCHS) == 2
    assert get(job, module.KL) == 0.1
    assert get(job, module.TEMPERATURE) == 1.0
    assert get(job, module.STOP_RULE) == "rollout_until_finish_enough_tasks"
    assert get(job, "ajet.enable_swarm_mode") is True


def test_the_job_for_rating_by_hand_differs_in_two_values() -> None:
    job, plain = hand_job("m"), default_job("m")
    assert (get(job, module.BATCH), get(job, module.LEARNING_RATE)) == (1, 8e-4)
    put(job, module.BATCH, 4)
    put(job, module.LEARNING_RATE, 5e-4)
    assert job == plain


def test_jobs_are_not_shared() -> None:
    put(default_job(), module.BATCH, 99)
    assert get(default_job(), module.BATCH) == 4


@pytest.mark.parametrize("job", [default_job("Qwen/Qwen2.5-7B", "run-ü"), hand_job()])
def test_there_and_back(job: dict[str, Any]) -> None:
    text = dump_job(job)
    assert load_job(text) == job
    assert yaml.safe_load(text) == job, "a number must not become text for other readers"
    assert list(yaml.safe_load(text)["ajet"]) == list(job["ajet"])


def test_a_number_that_yaml_reads_as_text_is_converted() -> None:
    job = load_job("ajet: {trainer_common: {optim: {lr: 5e-4}}, rollout: {num_repeat: '8'}}")
    assert get(job, module.LEARNING_RATE) == 5e-4
    assert get(job, module.REPEAT) == 8


def test_unknown_keys_are_retained() -> None:
    job = load_job("ajet: {rollout: {n_vllm: 3}, lora: {lora_rank: 0}}\ntrainer: {x: 1}")
    assert job == {
        "ajet": {"rollout": {"n_vllm": 3}, "lora": {"lora_rank": 0}},
        "trainer": {"x": 1},
    }


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("ajet: {a: [1}", "job.yaml:1: not YAML"),
        ("ajet:\n  a: 1\n b: 2", "job.yaml:3: not YAML"),
        ("", "no mapping `ajet`"),
        ("- 1", "no mapping `ajet`"),
        ("ajet: 3", "no mapping `ajet`"),
        ("ajet: {data: {train_batch_size: 0}}", "train_batch_size` is 0"),
        ("ajet: {rollout: {num_repeat: 2.5}}", "num_repeat` is 2.5"),
        ("ajet: {rollout: {num_repeat: many}}", "num_repeat` is 'many'"),
        ("ajet: {rollout: {num_repeat: true}}", "num_repeat` is True"),
        ("ajet: {trainer_common: {optim: {lr: -1}}}", "optim.lr` is -1"),
        ("ajet: {trainer_common: {optim: {lr: .nan}}}", "optim.lr` is nan"),
        ("ajet: {rollout: {temperature: .inf}}", "temperature` is inf"),
        ("ajet: {swarm_mode_sample_collection_method: soon}", "'soon'"),
    ],
)
def test_a_bad_job_has_a_precise_error(text: str, result: str) -> None:
    with pytest.raises(JobError) as caught:
        load_job(text, "job.yaml")
    assert result in str(caught.value)
    assert caught.value.todo
    assert isinstance(caught.value, UsageError)


def test_paths() -> None:
    job: dict[str, Any] = {}
    put(job, "a.b.c", 1)
    put(job, "a.d", None)
    assert job == {"a": {"b": {"c": 1}, "d": None}}
    assert get(job, "a.b.c") == 1
    assert get(job, "a.d", 5) == 5
    assert get(job, "a.b.c.e", 6) == 6
