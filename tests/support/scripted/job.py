"""How a scripted swarm server reads a job: what it asks of it, and what its trainer starts with."""

from typing import Any

import yaml

OWN: dict[str, Any] = {
    "ajet": {
        "enable_swarm_mode": False,
        "enable_interchange_server": False,
        "interchange_server": {"interchange_server_port": "auto"},
        "model": {"path": "/path/to/model"},
        "task_reader": {"type": "huggingface_dat_repo"},
        "task_judge": {"judge_protocol": "an_example->Judge"},
        "data": {"train_batch_size": 32},
        "rollout": {
            "user_workflow": "an_example->Workflow",
            "agent_madness_reward": -1.0,
            "max_env_worker": 64,
            "num_repeat": 4,
        },
        "trainer_common": {
            "logger": "swanlab",
            "nnodes": 1,
            "n_gpus_per_node": 8,
            "mini_batch_num": 1,
            "algorithm": {"adv_estimator": "grpo"},
        },
        "swarm_mode_sample_collection_method": "rollout_until_finish_enough_tasks",
    }
}
"""The server's own defaults: those that keep a swarm job from starting, and those of numbers."""

UPSTREAM: dict[str, Any] = {
    "ajet": {
        "experiment_dir": "auto",
        "backbone": "verl",
        "rollout": {
            "user_workflow": None,
            "max_env_worker": 128,
            "agent_madness_termination": True,
            "agent_madness_reward": 0.0,
        },
        "task_reader": {"type": "random_dummy"},
        "task_judge": {"judge_type": "customized_protocol", "judge_protocol": None},
        "enable_interchange_server": True,
        "enable_swarm_mode": True,
        "interchange_server": {
            "interchange_method": "ipc",
            "interchange_server_port": 10086,
            "num_fastapi_process": 1,
            "max_fastapi_threads": 512,
            "max_inference_tracker_threads": 256,
            "already_started": False,
        },
        "trainer_common": {"logger": "tensorboard"},
    },
    "hydra": {"searchpath": ["file://ajet/default_config", "file://ajet/default_config/verl"]},
    "defaults": ["verl_default", "ajet_default", "_self_"],
}
"""AgentJet's own swarm job, without the values that its server's defaults have too."""


KEYS = {"swanlab": "SWANLAB_API_KEY", "wandb": "WANDB_API_KEY"}
"""Logger -> environment variable without which the launch ends."""


def compose(text: str) -> dict[str, Any]:
    """The job over the defaults that it asks for.

    Raises:
        KeyError: a key is missing that is read before anything starts; its text is the server's.
        ValueError: a value of one of them cannot be used.
        yaml.YAMLError: it is not YAML.
    """
    job = yaml.safe_load(text)
    defaults = job["defaults"]
    if not job["hydra"]["searchpath"]:
        raise ValueError("In 'hydra/config': Could not find 'verl_default'")
    job["ajet"]["interchange_server"]  # read before the defaults are merged
    composed = _merge(OWN, job) if "ajet_default" in defaults else job
    int(composed["ajet"]["interchange_server"]["interchange_server_port"])
    return composed


def as_upstream(arguments: dict[str, Any]) -> dict[str, Any]:
    """The composed job of AgentJet's own client for the same arguments, a tree."""
    return _merge(OWN, _merge(UPSTREAM, arguments))


def trainer_error(composed: dict[str, Any], gpus: int = 8) -> str:
    """Why the trainer of a composed job ends at once; empty when it runs.

    Args:
        composed: The job over the server's defaults.
        gpus: GPUs of each node.
    """
    ajet = composed["ajet"]
    common = ajet["trainer_common"]
    if variable := KEYS.get(common["logger"]):
        return f"{variable} is not set"
    world = common["n_gpus_per_node"] * common["nnodes"]
    samples = ajet["data"]["train_batch_size"] * ajet["rollout"]["num_repeat"]
    if samples % world or samples // common["mini_batch_num"] < world:
        return f"AssertionError: {samples} samples on {world} GPUs"
    if common["n_gpus_per_node"] > gpus:
        return f"Total available GPUs {gpus} is less than total desired GPUs {world}"
    if not (ajet["enable_swarm_mode"] and ajet["enable_interchange_server"]):
        return "swarm mode is off"
    if ajet["task_reader"]["type"] != "random_dummy":
        return f"no dataset for {ajet['task_reader']['type']}"
    for name, value in (
        ("judge_protocol", ajet["task_judge"]["judge_protocol"]),
        ("user_workflow", ajet["rollout"]["user_workflow"]),
    ):
        if value is not None:
            return f"{name}: No module named {value!r}"
    if ajet["model"]["path"] in ("/path/to/model", "tiny", "smollm2"):
        return f"no model at {ajet['model']['path']}"
    return ""


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = {**under, **over}
    for key, value in under.items():
        if isinstance(value, dict) and isinstance(over.get(key), dict):
            merged[key] = _merge(value, over[key])
    return merged
