"""The whole tree that an AgentJet client sends, as its operator left it and as he changed it."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.interface import Hyperparameters
from engine.server.job import JobSupport, parse_job
from tests.support.engine.client import Driver

pytestmark = pytest.mark.slow

TREE = yaml.safe_load((Path(__file__).parents[3] / "data" / "job_tree.yaml").read_text())


def tree(**changes: Any) -> str:
    """The expanded tree; a change is named by its path under `ajet` with `__` for the dots."""
    whole = copy.deepcopy(TREE)
    for path, value in changes.items():
        *branch, leaf = path.split("__")
        node = whole["ajet"]
        for part in branch:
            node = node[part]
        node[leaf] = value
    return yaml.dump(whole, sort_keys=False, Dumper=_Whole)


class _Whole(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # a fifth of the time
    """Writes shared parts out, as hydra does."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def test_the_tree_as_it_stands_means_the_embedded_recipe() -> None:
    job = parse_job(tree())
    assert job.hyper == Hyperparameters()
    assert (job.batch_size, job.num_repeat, job.slots) == (32, 4, 128)
    assert (job.temperature, job.max_tokens, job.save_freq) == (1.0, None, 20)
    assert (job.experiment_name, job.checkpoint_name(3)) == ("", "step-000003")
    (line,) = job.notes
    for named in ("optim.lr 1e-06", "kl_loss_coef 0.002", "ppo_epochs 1", "optim.grad_clip 20"):
        assert f"ajet.trainer_common.{named}" in line
    assert job.override_notes("tiny", 192) == [
        "ajet.model.path: 'Qwen/Qwen2.5-7B-Instruct' is not loaded here, tiny is trained"
    ]


def test_changed_values_of_a_complete_tree_are_honoured() -> None:
    job = parse_job(
        tree(
            experiment_name="friday",
            data__train_batch_size=2,
            rollout__num_repeat=8,
            rollout__temperature=0.8,
            rollout__max_response_length_in_one_turn=50,
            trainer_common__optim__lr="3e-4",
            trainer_common__optim__grad_clip=2.5,
            trainer_common__ppo_epochs=4,
            trainer_common__kl_loss_coef=0.2,
            trainer_common__save_freq=5,
            trainer_common__total_training_steps=7,
            swarm_mode_sample_collection_method="rollout_until_any_client_agree_sync_weight",
        )
    )
    assert (job.batch_size, job.num_repeat, job.save_freq) == (2, 8, 5)
    assert (job.temperature, job.max_tokens, job.total_training_steps) == (0.8, 50, 7)
    assert job.hyper == Hyperparameters(lr=3e-4, epochs=4, kl=0.2, grad_clip=2.5, temperature=0.8)
    assert job.method == "rollout_until_any_client_agree_sync_weight"
    assert job.checkpoint_name(5) == "friday-step-000005"
    assert job.notes == ()


@pytest.mark.parametrize(("rank", "result"), [(32, True), ("8", True), (0, False), (None, False)])
def test_lora_is_ignored_with_a_notice(rank: object, result: bool) -> None:
    job = parse_job(tree(lora__lora_rank=rank, trainer_common__optim__lr="3e-4"))
    line = f"ajet.lora.lora_rank {rank}: LoRA is ignored, the policy's own weights are trained"
    notes = [*job.notes, *job.override_notes("tiny", 512)]
    assert (line in notes) == result
    assert any("lora" in note for note in notes) == result


WANTED = JobSupport(loads_models=True, model="Qwen/Qwen2.5-7B-Instruct")


def test_the_tree_as_it_stands_leaves_model_lora_and_window_to_the_engine() -> None:
    job = parse_job(tree())
    assert (job.lora_rank, job.lora_alpha, job.lora_targets) == (None, None, ())
    assert (job.max_model_len, job.max_response_length, job.weight_decay) == (None, None, None)
    assert (job.gpus, job.tensor_parallel) == (8, 1)
    assert job.override_notes("qwen", 4096, WANTED) == [
        "ajet.trainer_common.n_gpus_per_node: the job asks for 8 GPUs, this engine uses one: the "
        "same batch takes longer"
    ]


def test_what_a_job_leaves_unset_comes_from_the_recipe() -> None:
    recipe = Hyperparameters(lr=5e-5, kl=0.002, epochs=1, adam_eps=1e-8)
    assert parse_job(tree(), recipe=recipe).hyper == recipe
    changed = parse_job(tree(trainer_common__kl_loss_coef=0.01), recipe=recipe)
    assert changed.hyper == replace(recipe, kl=0.01)


def test_values_of_a_gpu_server_are_read() -> None:
    job = parse_job(
        tree(
            lora__lora_rank="32",
            lora__lora_alpha=64,
            lora__target_modules=["q_proj", "v_proj"],
            rollout__max_model_len=8192,
            rollout__tensor_model_parallel_size=2,
            data__max_response_length=2048,
            trainer_common__n_gpus_per_node=1,
            trainer_common__optim__weight_decay=0.0,
            trainer_common__optim__lr="2e-5",
        )
    )
    assert (job.lora_rank, job.lora_alpha, job.lora_targets) == (32, 64, ("q_proj", "v_proj"))
    assert (job.max_model_len, job.max_response_length, job.weight_decay) == (8192, 2048, 0.0)
    assert (job.hyper.lr, job.gpus, job.tensor_parallel) == (2e-5, 1, 2)
    assert job.override_notes("qwen", 8192, WANTED) == [
        "ajet.rollout.tensor_model_parallel_size 2: this engine uses one GPU, nothing is split"
    ]
    assert parse_job(tree(lora__target_modules="q_proj, k_proj")).lora_targets == (
        "q_proj",
        "k_proj",
    )


@pytest.mark.parametrize(
    ("support", "words"),
    [
        (JobSupport(loads_models=True, model="/m/small"), "started with --model /m/small"),
        (replace(WANTED, lora_rank=8), "rank 8 is used, the engine was started with --lora 8"),
        (replace(WANTED, full=True), "LoRA is not used, the engine was started with --full"),
        (WANTED, "the window has 512 tokens, not 1024: `--context` sets it"),
    ],
    ids=["model", "rank", "full", "window"],
)
def test_options_of_the_engine_that_override_the_job_are_noted(
    support: JobSupport, words: str
) -> None:
    text = tree(lora__lora_rank=32, rollout__max_model_len=1024, trainer_common__n_gpus_per_node=1)
    notes = parse_job(text).override_notes("qwen", 512, support)
    assert any(words in note for note in notes), notes
    assert not any("ignored" in note for note in notes)


def test_an_answer_over_the_window_is_noted() -> None:
    text = "ajet: {rollout: {max_response_length_in_one_turn: %d}}"
    assert parse_job(text % 300).override_notes("qwen", 512, WANTED) == []
    (note,) = parse_job(text % 512).override_notes("qwen", 512, WANTED)
    assert "an answer has what its prompt leaves of 512 tokens, not 512" in note


def test_a_length_of_prompts_is_noted_and_not_applied() -> None:
    (note,) = parse_job("ajet: {data: {max_prompt_length: 6000}}").notes
    assert note.startswith("ajet.data.max_prompt_length 6000: prompts are not limited by it")
    assert parse_job("ajet: {data: {max_prompt_length: 3000}}").notes == ()


def test_a_default_job_of_this_program_is_no_other_model() -> None:
    job = parse_job("ajet: {model: {path: tiny}}")
    assert job.override_notes("qwen", 4096, WANTED) == []
    assert job.override_notes("tiny-0.9m", 512, JobSupport(model="tiny")) == []


@pytest.mark.parametrize("targets", [7, {"a": 1}, [1, 2]], ids=str)
def test_odd_module_names_are_ignored_with_a_note(targets: object) -> None:
    job = parse_job(tree(lora__target_modules=targets))
    assert job.lora_targets == ()
    assert any("target_modules: must be names" in note for note in job.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"model__path": "/mnt/models/70B"},
        {"model__path": None},
        {"model__path": ["odd"]},
        {"trainer_common__n_gpus_per_node": 64, "trainer_common__nnodes": 16},
        {"trainer_common__n_gpus_per_node": -1},
        {"lora__lora_rank": 32, "lora__load_format": "safetensors"},
        {"lora__lora_rank": "many"},
        {"data__max_prompt_length": 128_000, "data__max_response_length": -5},
        {"rollout__max_response_length_in_one_turn": 10**9},
        {"rollout__max_response_length_in_one_turn": -5},
        {"rollout__max_response_length_in_one_turn": "long"},
        {"rollout__max_model_len": 0},
        {"rollout__max_env_worker": 10**6},
        {"rollout__tensor_model_parallel_size": 8, "backbone": "trinity"},
        {"trainer_common__save_freq": -1},
        {"trainer_common__kl_loss_type": "abs", "trainer_common__use_kl_in_reward": True},
        {"context_tracker__timeline_merging_policy__timeline_compare_level": "token"},
    ],
    ids=str,
)
def test_keys_of_the_gpu_side_never_refuse(changes: dict[str, Any]) -> None:
    job = parse_job(tree(**changes))
    assert job.hyper == Hyperparameters()
    assert 1 <= (job.max_tokens or 1) <= 1_000_000
    assert job.max_env_worker <= 4096


async def test_a_complete_tree_is_accepted_over_http_and_logged(idle: Driver) -> None:
    text = tree(rollout__max_response_length_in_one_turn=900)
    assert (await idle.post("/sync_train_config", yaml_as_string=text)).json() == {"success": True}
    assert (await idle.post("/start_engine")).json()["success"] is True
    logged = await idle.logged()
    assert logged.count("AgentJet's own defaults") == 1
    assert "'Qwen/Qwen2.5-7B-Instruct' is not loaded here, fake is trained" in logged
    assert "answers have at most 128 tokens, not 900: fake reads 256 tokens" in logged
    pool = await idle.pool()
    assert (pool["completed_task_target"], pool["task_expected_num_repeat"]) == (32, 4)
    assert len(idle.engine.pool) == 128
