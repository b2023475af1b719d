"""Completion of a job with the keys without which an AgentJet server never starts.

A server writes the job to a file, and hydra composes it over the server's default files, as the
job's keys `defaults` and `hydra` specify. If a key of `REQUIRED` is missing, the engine stays in
BOOTING. The embedded engine needs none of these keys. Source: protocol section 10.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ajet_swarm.common.text import one_line
from ajet_swarm.job.schema import (
    BATCH,
    DEFAULTS,
    GPUS,
    KL,
    LEARNING_RATE,
    METHOD,
    MODEL,
    NODES,
    PORT,
    REPEAT,
    REQUIRED,
)
from ajet_swarm.job.tree import Job, JobError, check_job, dump_job, get, place, put

MODEL_VARIABLE: Final = "REMOTE_MODEL_PATH"
"""Environment variable that names the model to train, as in AgentJet's tutorials."""

EMBEDDED_MODELS: Final = frozenset({"tiny", "smollm2"})
"""Models of the embedded engine; no AgentJet server has them."""

_LOGGER_KEYS: Final = {"swanlab": "SWANLAB_API_KEY", "wandb": "WANDB_API_KEY"}
"""Logger -> environment variable of the server without which no start succeeds."""
_EMBEDDED_RECIPE: Final[Mapping[str, Any]] = {
    "ajet.trainer_common.optim.weight_decay": 0.0,
    "ajet.trainer_common.optim.grad_clip": 1.0,
    "ajet.trainer_common.use_kl_loss": True,
    "ajet.trainer_common.kl_loss_type": "low_var_kl",
    "ajet.trainer_common.mini_batch_num": 1,
}
"""Values that identify a job of the embedded engine: no form of the console changes them."""


class ServerJob(NamedTuple):
    """A job that starts an AgentJet server."""

    text: str
    """YAML."""
    added: tuple[str, ...] = ()
    """Dotted paths that were added; empty when the caller's text is unchanged."""


class ModelError(JobError):
    """The job has no model, or one that an AgentJet server cannot have."""


def for_server(text: str, model: str = "", where: str = "job") -> ServerJob:
    """Complete a job for an AgentJet server.

    Existing values are never changed. A complete job is returned unchanged.

    Args:
        text: The job as YAML.
        model: The model for a job without one.
        where: Name of the job in errors.

    Raises:
        JobError: it is not a job, has no model, was made for the embedded engine, or its samples
            cannot be shared by its GPUs.
    """
    checked = check_job(text, where)
    job = checked.job
    _check_sections(job, where)
    added = [path for path, value in REQUIRED.items() if _lacks(job, path, value)]
    for path in added:
        # episodes on other nodes cannot reach a Unix socket
        tcp = path == METHOD and _number(job, NODES) > 1
        put(job, path, "tcp" if tcp else copy.deepcopy(REQUIRED[path]))
    if not get(job, MODEL) and model:
        put(job, MODEL, model)
        added.append(MODEL)
    if all(get(job, path) == value for path, value in _EMBEDDED_RECIPE.items()):
        rate, kl = get(job, LEARNING_RATE), get(job, KL)  # they would ruin a real model
        raise JobError(
            f"this job was made for the embedded engine (learning rate {rate}, KL {kl})",
            where,
            "Use this server's default job instead: `--preset default --set model=PATH`, or "
            "Default on the job's screen",
        )
    _check_model(job, where)
    if problem := _unequal_shares(job):
        raise JobError(problem, place(where, checked.lines, GPUS, BATCH), _share_remedy(job))
    return ServerJob(dump_job(job), tuple(added)) if added else ServerJob(text)


def world_size(job: Mapping[str, Any]) -> int:
    """Return the number of GPUs of all nodes; 8 are assumed for a job that names none."""
    return _number(job, GPUS) * _number(job, NODES)


def gpus_text(job: Mapping[str, Any]) -> str:
    """Return the number of GPUs as text that says when it is assumed, as "8 GPUs (assumed)"."""
    count = world_size(job)
    assumed = "" if get(job, GPUS) else " (assumed: the job names no number)"
    return f"{count} GPU{'s' if count > 1 else ''}{assumed}"


def likely_causes(text: str) -> str:
    """Return why the trainer of a job may have ended before it rolled, and where its log is.

    A server reports OFFLINE without a cause.

    Args:
        text: The job as YAML; may be empty if it is not known.
    """
    where = (
        "The cause is in the server's own log alone: swarm_server.log if it was started as in "
        "docs/guide/gpu-server.md"
    )
    try:
        job = check_job(text).job
    except JobError:
        return where
    causes = []
    logger = str(get(job, "ajet.trainer_common.logger"))
    if variable := _LOGGER_KEYS.get(logger):
        causes.append(f"the logger {logger} without {variable} in the server's environment")
    if problem := _unequal_shares(job):
        causes.append(problem)
    causes.append(f"fewer GPUs there than the {gpus_text(job)} of the job (`--set gpus=N`)")
    causes.append(f"no model `{one_line(get(job, MODEL, ''), 100)}` there (`--set model=PATH`)")
    return f"Likely causes: {'; '.join(causes)}. {where}"


def _check_sections(job: Job, where: str) -> None:
    """Refuse values with which no server starts.

    Raises:
        JobError: a section is not a mapping, or the port is not a number.
    """
    sections = {path[:end] for path in REQUIRED for end, sign in enumerate(path) if sign == "."}
    for section in sorted(sections):
        if not isinstance(value := get(job, section, {}), Mapping):
            raise JobError(f"`{section}` is {value!r:.60}", where, "Write it as a mapping")
    if (port := get(job, PORT)) is not None and not isinstance(port, int):
        raise JobError(f"`{PORT}` is {port!r:.60}", where, "Give a number, or leave the key out")


def _lacks(job: Mapping[str, Any], path: str, value: Any) -> bool:
    """Return whether a key is missing; null and an empty list count as missing if `value` is
    required."""
    section, _, last = path.rpartition(".")
    node = get(job, section) if section else job
    if not isinstance(node, Mapping) or last not in node:
        return True
    return node[last] in (None, []) and value is not None


def _check_model(job: Mapping[str, Any], where: str) -> None:
    name = get(job, MODEL)
    todo = (
        f"Set `{MODEL}` to a folder or hub name on the server: the field Model of the job, "
        f"`--set model=PATH`, or {MODEL_VARIABLE}"
    )
    if not name:
        gpus = "" if get(job, GPUS) else "; and the GPUs of each node, if not 8: `--set gpus=N`"
        raise ModelError("no model is named", where, todo + gpus)
    if name in EMBEDDED_MODELS:
        raise ModelError(
            f"`{name}` is a model of the embedded engine, this is an AgentJet server", where, todo
        )


def _unequal_shares(job: Mapping[str, Any]) -> str:
    """Return why the GPUs cannot share the samples of a batch equally; empty if they can.

    The trainer of such a job never starts.
    """
    tasks, repeats, updates = (_number(job, path) for path in (BATCH, REPEAT, _UPDATES))
    samples, gpus = tasks * repeats, world_size(job)
    if samples % gpus == 0 and samples // updates >= gpus:
        return ""
    parts = f" in {updates} updates" if updates > 1 else ""
    return (
        f"a batch has {samples} samples{parts} (tasks x repeats: {tasks} x {repeats}), which "
        f"{gpus_text(job)} cannot share equally"
    )


def _share_remedy(job: Mapping[str, Any]) -> str:
    repeats = _number(job, REPEAT)
    least = math.lcm(world_size(job) * _number(job, _UPDATES), repeats) // repeats
    return (
        f"Set the number of GPUs of each node (`{GPUS}`, `--set gpus=N`), or a multiple of "
        f"{least} as `{BATCH}` (`--set batch={least}`)"
    )


_UPDATES: Final = "ajet.trainer_common.mini_batch_num"


def _number(job: Mapping[str, Any], path: str) -> int:
    """Return a number of the job, else the server's default."""
    value = get(job, path)
    return value if isinstance(value, int) and value > 0 else int(DEFAULTS[path])
