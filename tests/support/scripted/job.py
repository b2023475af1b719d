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
        "rollout": {"user_workflow": "an_example->Workflow", "agent_madness_reward": -1.0},
        "trainer_common": {"nnodes": 1},
    }
}
"""The server's own defaults that keep a swarm job from starting."""


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


def trainer_error(composed: dict[str, Any]) -> str:
    """Why the trainer of a composed job ends at once; empty when it runs."""
    ajet = composed["ajet"]
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
