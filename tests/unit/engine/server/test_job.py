"""Job YAML -> Job."""

import pytest
import yaml

from ajet_swarm.job.schema import STOP_RULES
from ajet_swarm.job.tree import MAX_CHARS, JobError
from engine.interface import Hyperparameters
from engine.server.job import ENOUGH_TASKS, Job, parse_job


def job(path: str, value: object) -> Job:
    tree: object = value
    for part in reversed(path.split(".")):
        tree = {part: tree}
    return parse_job(yaml.dump(tree))


def test_an_empty_job_is_the_default() -> None:
    assert parse_job("{}") == Job()
    assert parse_job("ajet:\n  rollout:\n") == Job()


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


def test_agentjets_own_defaults_mean_the_embedded_recipe() -> None:
    """What AgentJet's swarm YAML holds when the operator set nothing."""
    read = parse_job(
        """
        ajet:
          backbone: verl
          model: {path: Qwen/Qwen2.5-7B-Instruct}
          lora: {lora_rank: 32, load_format: safetensors}
          data: {train_batch_size: 32, max_prompt_length: 3000}
          rollout: {num_repeat: 4, temperature: 0.9, top_p: 1.0, n_vllm_engine: 8,
                    max_response_length_in_one_turn: 4096, max_env_worker: 128}
          trainer_common: {n_gpus_per_node: 8, nnodes: 2, optim: {lr: 1.0e-06}, ppo_epochs: 1,
                           kl_loss_coef: 0.002, use_kl_loss: true, total_training_steps: null,
                           algorithm: {adv_estimator: grpo, use_kl_in_reward: false}}
        trainer: {anything: [1, 2]}
        """
    )
    assert read.hyper == Hyperparameters()
    assert (read.batch_size, read.num_repeat, read.slots) == (32, 4, 128)
    assert (read.temperature, read.max_tokens) == (1.0, None)
    (line,) = read.notes
    _, lora = read.override_notes("tiny", 512)
    assert lora.startswith("ajet.lora.lora_rank 32: LoRA is ignored")
    assert line == (
        "AgentJet's own defaults, the embedded recipe is used instead: "
        "ajet.rollout.temperature 0.9, ajet.trainer_common.optim.lr 1e-06, "
        "ajet.trainer_common.kl_loss_coef 0.002, ajet.trainer_common.ppo_epochs 1, "
        "ajet.rollout.max_response_length_in_one_turn 4096"
    )


@pytest.mark.parametrize("text", ["1e-3", 1e-3, "0.001"])
def test_a_number_yaml_reads_as_text_is_a_number(text: object) -> None:
    assert job("ajet.trainer_common.optim.lr", text).hyper.lr == 1e-3


def test_no_kl_loss_is_no_kl() -> None:
    assert job("ajet.trainer_common.use_kl_loss", False).hyper.kl == 0.0


@pytest.mark.parametrize(
    ("batch", "repeat", "workers", "slots"),
    [
        (4, 4, 128, 16),
        (32, 4, 128, 128),
        (64, 4, 128, 128),
        (4, 4, 6, 8),
        (1, 4, 1, 4),
        (3, 5, 7, 10),
    ],
)
def test_slots(batch: int, repeat: int, workers: int, slots: int) -> None:
    assert Job(batch_size=batch, num_repeat=repeat, max_env_worker=workers).slots == slots


@pytest.mark.parametrize("method", STOP_RULES)
def test_methods(method: str) -> None:
    read = job("ajet.swarm_mode_sample_collection_method", method)
    assert (read.method, read.notes) == (method, ())


def test_an_unknown_method_falls_back_to_the_default_with_a_notice() -> None:
    read = job("ajet.swarm_mode_sample_collection_method", "rollout_until_tea_time")
    assert read.method == ENOUGH_TASKS
    assert "rollout_until_tea_time" in read.notes[0]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("ajet.data.train_batch_size", -4, "at least 1"),
        ("ajet.data.train_batch_size", 0, "at least 1"),
        ("ajet.data.train_batch_size", 2.5, "whole number"),
        ("ajet.data.train_batch_size", True, "must be a number"),
        ("ajet.data.train_batch_size", 10**400, "must be a number"),
        ("ajet.rollout.num_repeat", 10**9, "at most 1024"),
        ("ajet.rollout.num_repeat", "four", "must be a number"),
        ("ajet.rollout.num_repeat", [4], "must be a number"),
        ("ajet.rollout.temperature", 0, "above 0"),
        ("ajet.rollout.temperature", float("nan"), "must be a number"),
        ("ajet.rollout.max_env_worker", 0, "at least 1"),
        ("ajet.trainer_common.optim.lr", 0, "above 0"),
        ("ajet.trainer_common.optim.lr", -1e-4, "above 0"),
        ("ajet.trainer_common.optim.lr", float("inf"), "must be a number"),
        ("ajet.trainer_common.kl_loss_coef", -0.1, "at least 0"),
        ("ajet.trainer_common.total_training_steps", 0, "at least 1"),
        ("ajet.trainer_common.algorithm.adv_estimator", "gae", "unknown algorithm 'gae'"),
        ("ajet.experiment_name", ["a"], "must be a name"),
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


def test_a_branch_that_is_no_mapping_is_named() -> None:
    with pytest.raises(JobError, match=r"^ajet\.rollout: must be a mapping"):
        parse_job("ajet: {rollout: 4}")
    with pytest.raises(JobError, match=r"^ajet: must be a mapping"):
        parse_job("ajet: yes")


def test_the_forms_of_the_objective_are_settings() -> None:
    base = Hyperparameters()
    assert job("ajet.trainer_common.kl_loss_type", "k3").hyper.kl_form == "k3"
    assert job("ajet.trainer_common.kl_loss_type", "low_var_kl+").hyper.kl_form == "k3+"
    assert job("ajet.trainer_common.kl_loss_type", "low_var_kl").hyper == base
    assert job("ajet.embedded.advantage", "standard").hyper.advantage == "standard"
    assert job("ajet.embedded.damping", 0.5).hyper.damping == 0.5
    with pytest.raises(JobError, match=r"ajet\.embedded\.advantage: .*damped, standard"):
        job("ajet.embedded.advantage", "best")
    with pytest.raises(JobError, match=r"ajet\.embedded\.damping: must be above 0"):
        job("ajet.embedded.damping", 0)
