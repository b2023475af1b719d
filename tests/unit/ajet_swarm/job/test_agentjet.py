"""AgentJet's job object."""

import inspect
import logging
from pathlib import Path

import pytest
import yaml

from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.job.schema import PATHS
from ajet_swarm.job.tree import JobError, check_job, get, load_job


def test_each_argument_sets_its_path() -> None:
    names = [n for n in inspect.signature(AgentJetJob).parameters if n in PATHS]
    assert sorted(names) == sorted(PATHS)
    job = AgentJetJob(
        experiment_name="e",
        model="some/model",
        algorithm="grpo",
        n_gpu=2,
        batch_size=8,
        num_repeat=6,
        lr=1e-5,
        max_env_worker=64,
        logging="swanlab",
        ppo_epochs=2,
        total_training_steps=25,
        timeline_compare_level="token",
    )
    to_dict = job.config.to_dict()
    assert get(to_dict, "ajet.data.train_batch_size") == 8
    assert get(to_dict, "ajet.rollout.num_repeat") == 6
    assert get(to_dict, "ajet.trainer_common.optim.lr") == 1e-5
    assert get(to_dict, "ajet.trainer_common.logger") == "swanlab"
    assert get(to_dict, "ajet.trainer_common.total_training_steps") == 25
    assert job.batch_size == 8
    assert job.max_model_len == 18000, "left out: AgentJet's default"
    assert job.swarm_mode_sample_collection_method == "rollout_until_finish_enough_tasks"


def test_attributes_and_the_tree_share_their_values() -> None:
    job = AgentJetJob(model="m")
    job.batch_size = 16
    assert job.config.ajet.data.train_batch_size == 16
    job.config.ajet.rollout.temperature = 0.7
    job.config.ajet.lora.lora_alpha = 32
    assert job.lora_alpha == 32
    assert yaml.safe_load(job.to_yaml())["ajet"]["rollout"]["temperature"] == 0.7
    copy = job.config.to_dict()
    copy["ajet"]["model"]["path"] = "other"
    assert job.model == "m"
    with pytest.raises(AttributeError, match="no `temprature` here; available"):
        _ = job.config.ajet.rollout.temprature
    with pytest.raises(AttributeError):
        _ = job.no_such_thing


@pytest.mark.slow
def test_to_a_file_and_back(tmp_path: Path) -> None:
    job = AgentJetJob(model="m", batch_size=4, overrides={"ajet.rollout.temperature": 0.5})
    path = job.dump_job_as_yaml(str(tmp_path / "deep" / "job.yaml"))
    again = AgentJetJob(base_yaml_config=path, num_repeat=2)
    assert (again.model, again.batch_size, again.num_repeat) == ("m", 4, 2)
    assert again.config.ajet.rollout.temperature == 0.5
    assert AgentJetJob(base_yaml_config=path).config_as_dict == job.config_as_dict
    assert job.build_job_from_yaml(path) == job.config_as_dict


def test_a_new_experiment_has_a_stamp() -> None:
    job = AgentJetJob(ensure_new_experiment=True, experiment_name="e")
    assert job.experiment_name.startswith("e_2")
    assert len(job.experiment_name) == len("e_20260101-000000")


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ({"max_prompt_length": 100}, "max_response_length_in_one_turn, max_model_len is missing"),
        ({"batch_size": 0}, "train_batch_size"),
        ({"num_repeat": 2.5}, "num_repeat"),
        ({"n_gpu": 0}, "n_gpu"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"backbone": "trinity"}, "trinity"),
        ({"swarm_mode_sample_collection_method": "soon"}, "rollout_until"),
        ({"timeline_compare_level": "word"}, "text, text_and_image, token"),
        ({"lora_rank": 8}, "safetensors"),
        ({"lora_rank": 8, "lora_load_format": "safetensors"}, "layered_summon"),
        (
            {"lora_rank": 8, "lora_load_format": "safetensors", "layered_summon": True},
            "lr is 1e-06",
        ),
        ({"base_yaml_config": "nowhere.yaml"}, "nowhere.yaml: cannot be read"),
        ({"model": ""}, "model.path"),
    ],
)
def test_invalid_values_are_named(values: dict[str, object], result: str) -> None:
    with pytest.raises(JobError, match=result):
        AgentJetJob(**values)  # type: ignore[arg-type]  # on purpose


def test_the_four_lengths() -> None:
    lengths = {
        "max_prompt_length": 100,
        "max_response_length": 200,
        "max_response_length_in_one_turn": 50,
        "max_model_len": 300,
    }
    assert AgentJetJob(**lengths).max_model_len == 300  # type: ignore[arg-type]  # a dict of ints
    with pytest.raises(JobError, match="more than"):
        AgentJetJob(**lengths | {"max_model_len": 299})  # type: ignore[arg-type]
    with pytest.raises(JobError, match="more than"):
        AgentJetJob(**lengths | {"max_response_length_in_one_turn": 201})  # type: ignore[arg-type]


def test_lora() -> None:
    job = AgentJetJob(
        lora_rank=8, lora_alpha=16, lora_load_format="safetensors", layered_summon=True, lr=2e-5
    )
    assert job.config.ajet.lora.to_dict()["lora_rank"] == 8


def test_an_unknown_key_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("ajet:\n  rollout: {num_repeats: 3}\n")
    with caplog.at_level(logging.WARNING):
        AgentJetJob(base_yaml_config=str(path))
    assert "unknown key `ajet.rollout.num_repeats`: is `ajet.rollout.num_repeat` meant?" in (
        caplog.text
    )


@pytest.mark.slow
def test_several_nodes_talk_over_tcp() -> None:
    path = "ajet.interchange_server.interchange_method"
    assert get(AgentJetJob(nnodes=2).config.to_dict(), path) == "tcp"
    assert get(AgentJetJob().config.to_dict(), path) == "ipc"
    job = AgentJetJob()
    job.nnodes = 4
    assert get(load_job(job.to_yaml()), path) == "tcp"
    job.batch_size = 0
    with pytest.raises(JobError, match="train_batch_size"):
        job.to_yaml()
    with pytest.raises(JobError, match="interchange_method is 'ipc'"):
        AgentJetJob(nnodes=2, overrides={path: "ipc"})


def test_an_unknown_argument_names_the_alternatives() -> None:
    with pytest.raises(JobError) as caught:
        AgentJetJob(model="m", num_repeats=4)
    assert caught.value.what == "there is no argument `num_repeats`: is `num_repeat` meant?"
    assert "base_yaml_config=" in caught.value.todo


@pytest.mark.slow
def test_the_arguments_of_newer_servers() -> None:
    job = AgentJetJob(ulysses_sequence_parallel_size=2, ppo_max_token_len_per_gpu=9000)
    sent = load_job(job.to_yaml())
    assert get(sent, "ajet.trainer_common.ulysses_sequence_parallel_size") == 2
    assert get(sent, "ajet.rollout.ppo_max_token_len_per_gpu") == 9000
    assert not check_job(job.to_yaml()).notices
    with pytest.raises(JobError, match="whole number of at least 1"):
        AgentJetJob(ulysses_sequence_parallel_size=0)


@pytest.mark.slow
def test_a_file_is_loaded_into_the_job_and_arguments_win(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "ajet:\n  model: {path: of-the-file}\n  data: {train_batch_size: 7}\n"
        "  rollout: {num_repeat: 9, temperature: 0.9}\n"
    )
    job = AgentJetJob(num_repeat=2, overrides={"ajet.rollout.top_p": 0.5})
    job.batch_size = 3
    tree = job.build_job_from_yaml(str(path))
    assert (job.model, job.batch_size, job.num_repeat) == ("of-the-file", 3, 2)
    assert tree == job.config_as_dict
    sent = load_job(job.to_yaml())
    assert get(sent, "ajet.rollout.top_p") == 0.5
    assert get(sent, "ajet.rollout.temperature") == 0.9, "a default that the file names is sent"
    with pytest.raises(JobError):
        job.build_job_from_yaml(str(tmp_path / "absent.yaml"))
    assert job.model == "of-the-file"


def test_a_stamped_name_stays_the_same_when_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("ajet: {experiment_name: run, model: {path: m}}\n")
    job = AgentJetJob(ensure_new_experiment=True, experiment_name="mine")
    name = job.experiment_name
    job.build_job_from_yaml(str(path))
    assert job.experiment_name == name
    assert name.startswith("mine_")
