"""Job YAML -> Job."""

from operator import attrgetter

import pytest
import yaml

from ajet_swarm.job.schema import STOP_RULES
from ajet_swarm.job.tree import MAX_CHARS, JobError
from engine.interface import Hyperparameters
from engine.server.job import ENOUGH_TASKS, Job, parse_job

METHOD = "ajet.swarm_mode_sample_collection_method"
KL = "ajet.trainer_common.kl_loss_type"
LR = "ajet.trainer_common.optim.lr"
BATCH, REPEAT = "ajet.data.train_batch_size", "ajet.rollout.num_repeat"


def job(path: str, value: object) -> Job:
    tree: object = value
    for part in reversed(path.split(".")):
        tree = {part: tree}
    return parse_job(yaml.dump(tree))


def test_an_empty_job_is_the_default() -> None:
    assert parse_job("{}") == parse_job("ajet:\n  rollout:\n") == Job()


def test_honoured_keys_take_effect() -> None:
    read = parse_job(
        """
        ajet:
          experiment_name: mine
          swarm_mode_sample_collection_method: rollout_until_finish_enough_episodes
          swarm_mode_sample_collection_max_cached_episodes: 50
          data: {train_batch_size: 7}
          rollout: {num_repeat: 3, temperature: 0.7, top_p: 0.95, max_env_worker: 10,
                    max_response_length_in_one_turn: 40}
          trainer_common:
            optim: {lr: 8e-4}
            ppo_epochs: 3
            kl_loss_coef: 0.05
            total_training_steps: 12
            algorithm: {adv_estimator: grpo}
        """
    )
    assert read == Job(
        batch_size=7,
        num_repeat=3,
        method="rollout_until_finish_enough_episodes",
        max_env_worker=10,
        max_cached_episodes=50,
        temperature=0.7,
        top_p=0.95,
        max_tokens=40,
        total_training_steps=12,
        experiment_name="mine",
        hyper=Hyperparameters(lr=8e-4, epochs=3, kl=0.05, temperature=0.7),
    )


@pytest.mark.parametrize(
    ("path", "value", "field", "expected"),
    [
        (LR, "1e-3", "hyper.lr", 1e-3),
        (LR, 1e-3, "hyper.lr", 1e-3),
        (LR, "0.001", "hyper.lr", 1e-3),
        ("ajet.trainer_common.use_kl_loss", False, "hyper.kl", 0.0),
        ("ajet.trainer_common.save_freq", -1, "save_freq", 0),
        ("ajet.trainer_common.save_freq", 0, "save_freq", 0),
        (KL, "k3", "hyper.kl_form", "k3"),
        (KL, "low_var_kl+", "hyper.kl_form", "k3+"),
        (KL, "low_var_kl", "hyper", Hyperparameters()),
        ("ajet.embedded.advantage", "standard", "hyper.advantage", "standard"),
        ("ajet.embedded.damping", 0.5, "hyper.damping", 0.5),
        *((METHOD, rule, "method", rule) for rule in STOP_RULES),
    ],
)
def test_a_key_is_a_field_of_the_job(
    path: str, value: object, field: str, expected: object
) -> None:
    read = job(path, value)
    assert (attrgetter(field)(read), read.notes) == (expected, ())


def test_an_unknown_method_falls_back_to_the_default_with_a_notice() -> None:
    read = job(METHOD, "rollout_until_tea_time")
    assert read.method == ENOUGH_TASKS
    assert "rollout_until_tea_time" in read.notes[0]


@pytest.mark.parametrize(
    ("batch", "workers", "slots"),
    [(4, 128, 16), (32, 128, 128), (64, 128, 128), (4, 6, 8), (1, 1, 4)],
)
def test_slots(batch: int, workers: int, slots: int) -> None:
    assert Job(batch_size=batch, num_repeat=4, max_env_worker=workers).slots == slots
    assert Job(batch_size=3, num_repeat=5, max_env_worker=7).slots == 10


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [("", "step-000012"), ("../../etc", "etc-step-000012"), ("ü", "step-000012")],
)
def test_names_of_checkpoints(name: str, checkpoint: str) -> None:
    assert Job(experiment_name=name).checkpoint_name(12) == checkpoint
    assert len(Job(experiment_name="x" * 500).checkpoint_name(1)) <= 64


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (BATCH, -4, "at least 1"),
        (BATCH, 0, "at least 1"),
        (BATCH, 2.5, "whole number"),
        (BATCH, True, "must be a number"),
        (BATCH, 10**400, "must be a number"),
        (REPEAT, 10**9, "at most 1024"),
        (REPEAT, "four", "must be a number"),
        (REPEAT, [4], "must be a number"),
        ("ajet.rollout.temperature", 0, "above 0"),
        ("ajet.rollout.temperature", float("nan"), "must be a number"),
        ("ajet.rollout.max_env_worker", 0, "at least 1"),
        (LR, 0, "above 0"),
        (LR, -1e-4, "above 0"),
        (LR, float("inf"), "must be a number"),
        ("ajet.trainer_common.kl_loss_coef", -0.1, "at least 0"),
        ("ajet.trainer_common.total_training_steps", 0, "at least 1"),
        ("ajet.trainer_common.algorithm.adv_estimator", "gae", "unknown algorithm 'gae'"),
        ("ajet.experiment_name", ["a"], "must be a name"),
        ("ajet.embedded.advantage", "best", "damped, standard"),
        ("ajet.embedded.damping", 0, "must be above 0"),
        ("ajet.rollout", 4, "must be a mapping"),
        ("ajet", "yes", "must be a mapping"),
    ],
)
def test_nonsense_is_refused_with_its_key(path: str, value: object, reason: str) -> None:
    with pytest.raises(JobError) as refused:
        job(path, value)
    assert str(refused.value).startswith(f"{path}: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a mapping, found nothing"),
        ("- 1", "must be a mapping, found list"),
        ("ajet: [unclosed", "not YAML"),
        ("ajet: \x07", "not YAML"),
        ("ajet: !!python/object/apply:os.getcwd []", "not YAML"),
        ("ajet: 2026-99-99", "not YAML"),
        ("a: " + "[" * 400_000 + "]" * 400_000, "nested deeper"),
        ("- " * 400_000, "nested deeper"),
        ("#" * (MAX_CHARS + 1), "longer than"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_texts_that_are_not_jobs_are_refused(text: str, reason: str) -> None:
    with pytest.raises(JobError, match=r"^yaml_as_string[:0-9]*: ") as refused:
        parse_job(text)
    assert reason in str(refused.value)
