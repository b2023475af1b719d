"""The jobs that come with the program, and the differences of two jobs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ajet_swarm.job.schema import (
    BATCH,
    EXPERIMENT,
    GPUS,
    LEARNING_RATE,
    MODEL,
    NODES,
    PROJECT,
    REPEAT,
)
from ajet_swarm.job.server import EMBEDDED_MODELS, world_size
from ajet_swarm.job.tree import Job, flat, get, put
from core.settings import EngineSettings

PRESETS: Final = ("default", "hand")
"""Names of the jobs."""
EXPERIMENT_NAME: Final = "ajet-console"


def preset_job(
    preset: str, engine: EngineSettings | None = None, model: str = "", like: Job | None = None
) -> Job:
    """Return a job that comes with the program.

    That of the torch backend also starts an AgentJet server: it leaves the learning rate and the
    like to the engine.

    Args:
        preset: `default`, or `hand` for rating by hand.
        engine: Settings of the embedded engine; None for an AgentJet server.
        model: Model for an AgentJet server.
        like: Earlier job of the AgentJet server, see `server_job`.
    """
    by_hand = preset == "hand"
    if engine is None:
        return server_hand_job(model, like) if by_hand else server_job(model, like)
    if engine.backend != "torch":
        return hand_job(engine.model) if by_hand else default_job(engine.model)
    one_gpu: Job = {}
    put(one_gpu, GPUS, 1)
    if by_hand:
        return server_hand_job(engine.torch_model, one_gpu)
    job = server_job(engine.torch_model, one_gpu)
    put(job, BATCH, 4)
    return job


def default_job(model: str = "tiny") -> Job:
    """Return the default job of the small policies: 4 tasks x 4 repeats per step."""
    return {
        "ajet": {
            "project_name": EXPERIMENT_NAME,
            "experiment_name": EXPERIMENT_NAME,
            "experiment_dir": "auto",
            "backbone": "verl",
            "enable_swarm_mode": True,
            "enable_interchange_server": True,
            "swarm_mode_sample_collection_method": "rollout_until_finish_enough_tasks",
            "swarm_mode_sample_collection_max_cached_episodes": 9999,
            "model": {"path": model},
            "data": {"train_batch_size": 4},
            "rollout": {"num_repeat": 4, "temperature": 1.0, "top_p": 1.0, "max_env_worker": 128},
            "trainer_common": {
                "algorithm": {"adv_estimator": "grpo"},
                "optim": {"lr": 5e-4, "weight_decay": 0.0, "grad_clip": 1.0},
                "ppo_epochs": 2,
                "mini_batch_num": 1,
                "use_kl_loss": True,
                "kl_loss_coef": 0.1,
                "kl_loss_type": "low_var_kl",
                "total_training_steps": None,
            },
        }
    }


def hand_job(model: str = "tiny") -> Job:
    """Return the job for rating by hand: one task per step, so that each rated group is one update,
    and a higher learning rate."""
    job = default_job(model)
    put(job, BATCH, 1)
    put(job, LEARNING_RATE, 8e-4)
    return job


def server_job(model: str = "", like: Job | None = None) -> Job:
    """Return the default job of an AgentJet server; it leaves all training values to the server.

    Args:
        model: `ajet.model.path`, a folder or hub name on the server; empty when not known yet.
        like: An earlier job of the server, whose number of GPUs is used, and whose model without
            `model`.
    """
    job: Job = {}
    put(job, PROJECT, EXPERIMENT_NAME)
    put(job, EXPERIMENT, EXPERIMENT_NAME)
    known = {path: get(like or {}, path) for path in (MODEL, GPUS, NODES)}
    if model or known[MODEL] in EMBEDDED_MODELS:
        known[MODEL] = model
    for path, value in known.items():
        if value:
            put(job, path, value)
    return job


def server_hand_job(model: str = "", like: Job | None = None) -> Job:
    """Return `server_job` with as few tasks per step, of four answers each, as the GPUs can share.

    With 8 GPUs two rated groups are one update, with 4 each group is one.
    """
    job = server_job(model, like)
    put(job, BATCH, world_size(job) // math.gcd(world_size(job), 4))
    put(job, REPEAT, 4)
    return job


def votes_text(job: Mapping[str, Any]) -> str:
    """Return how many rated groups are one update, as "2 votes make one update"."""
    tasks = get(job, BATCH, 1)
    return f"{tasks} votes make one update" if tasks > 1 else "each vote makes one update"


MISSING: Final = msgspec.UNSET
"""Marker of a missing key; null is a value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs; `MISSING` on the side without it."""

    path: str
    before: Any
    after: Any


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the differences of two trees: in the order of `after`, then its missing keys."""
    old, new = dict(flat(before)), dict(flat(after))
    pairs = [Change(path, old.get(path, MISSING), new.get(path, MISSING)) for path in new | old]
    return [change for change in pairs if not same(change.before, change.after)]


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; 1 equals 1.0 but not true."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
