"""Completion of a job with the keys without which an AgentJet server never starts.

A server writes the job to a file, and hydra composes it over the server's default files, as the
job's keys `defaults` and `hydra` specify. If a key of `REQUIRED` is missing, the engine stays in
BOOTING. The embedded engine needs none of these keys. Source: protocol section 10.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.job import (
    BATCH,
    EXPERIMENT,
    GPUS,
    KL,
    LEARNING_RATE,
    MODEL,
    NODES,
    PROJECT,
    REPEAT,
    Job,
    JobError,
    dump_job,
    get,
    put,
)
from ajet_swarm.protocol.job_schema import DEFAULTS, REQUIRED
from ajet_swarm.protocol.job_validation import check_job

MODEL_VARIABLE: Final = "REMOTE_MODEL_PATH"
"""Environment variable that names the model to train, as in AgentJet's tutorials."""

EMBEDDED_MODELS: Final = frozenset({"tiny", "smollm2"})
"""Models of the embedded engine; no AgentJet server has them."""

_METHOD: Final = "ajet.interchange_server.interchange_method"
_LOGGER_KEYS: Final = {"swanlab": "SWANLAB_API_KEY", "wandb": "WANDB_API_KEY"}
"""Logger -> environment variable of the server without which no start succeeds."""
_PORT: Final = "ajet.interchange_server.interchange_server_port"
_EMBEDDED_RECIPE: Final[Mapping[str, Any]] = {
    "ajet.trainer_common.optim.weight_decay": 0.0,
    "ajet.trainer_common.optim.grad_clip": 1.0,
    "ajet.trainer_common.use_kl_loss": True,
    "ajet.trainer_common.kl_loss_type": "low_var_kl",
    "ajet.trainer_common.mini_batch_num": 1,
}
"""Values of `default_job` that identify a job of the embedded engine."""


@dataclass(frozen=True, slots=True)
class ServerJob:
    """A job that starts an AgentJet server."""

    text: str
    """YAML."""
    added: tuple[str, ...] = ()
    """Dotted paths that were added; empty when the caller's text is unchanged."""


def server_job(model: str = "", experiment: str = "ajet-console", like: Job | None = None) -> Job:
    """Return the default job of an AgentJet server; it leaves all training values to the server.

    Args:
        model: `ajet.model.path`, a folder or hub name on the server; empty when not known yet.
        experiment: Experiment name; also the run's folder on the server.
        like: An earlier job of the server, whose number of GPUs is used, and whose model without
            `model`.
    """
    job: Job = {}
    put(job, PROJECT, "ajet-console")
    put(job, EXPERIMENT, experiment)
    known = {path: get(like or {}, path) for path in (MODEL, GPUS, NODES)}
    if model or known[MODEL] in EMBEDDED_MODELS:
        known[MODEL] = model
    for path, value in known.items():
        if value:
            put(job, path, value)
    return job


def server_hand_job(
    model: str = "", experiment: str = "ajet-console", like: Job | None = None
) -> Job:
    """Return `server_job` with as few tasks per step, of four answers each, as the GPUs can share.

    With 8 GPUs two rated groups are one update, with 4 each group is one.
    """
    job = server_job(model, experiment, like)
    put(job, BATCH, world_size(job) // math.gcd(world_size(job), 4))
    put(job, REPEAT, 4)
    return job


def world_size(job: Mapping[str, Any]) -> int:
    """Return the number of GPUs of all nodes; 8 are assumed for a job that names none."""
    return _number(job, GPUS) * _number(job, NODES)


def gpus_text(job: Mapping[str, Any]) -> str:
    """Return the number of GPUs as text that says when it is assumed, as "8 GPUs (assumed)"."""
    count = world_size(job)
    assumed = "" if get(job, GPUS) else " (assumed: the job names no number)"
    return f"{count} GPU{'s' if count > 1 else ''}{assumed}"


def votes_text(job: Mapping[str, Any]) -> str:
    """Return how many rated groups are one update, as "2 votes make one update"."""
    tasks = _number(job, BATCH)
    return f"{tasks} votes make one update" if tasks > 1 else "each vote makes one update"


def for_server(text: str, model: str = "", where: str = "job") -> ServerJob:
    """Complete a job for an AgentJet server.

    Existing values are never changed. A complete job is returned unchanged.

    Args:
        text: The job as YAML.
        model: The model for a job without one.
        where: Name of the job in errors.

    Raises:
        JobError: it is not a job, has no model, or was made for the embedded engine.
    """
    checked = check_job(text, where)
    job = checked.job
    _check_sections(job, where)
    added = [path for path, value in REQUIRED.items() if _lacks(job, path, value)]
    for path in added:
        put(job, path, _required_value(job, path))
    if not get(job, MODEL) and model:
        put(job, MODEL, model)
        added.append(MODEL)
    check_recipe(job, where)
    check_model(job, where)
    line = next((checked.lines[path] for path in (GPUS, BATCH) if path in checked.lines), 0)
    check_shares(job, f"{where}:{line}" if line else where)
    return ServerJob(dump_job(job), tuple(added)) if added else ServerJob(text)


def with_model(text: str, model: str) -> str:
    """Return a job, with `model` added when it has no model."""
    job = check_job(text).job
    if get(job, MODEL):
        return text
    put(job, MODEL, model)
    return dump_job(job)


class ModelError(JobError):
    """The job has no model, or one that an AgentJet server cannot have."""


def check_recipe(job: Mapping[str, Any], where: str = "job") -> None:
    """Refuse a job that was made for the embedded engine.

    It is identified by values that no form of the console changes; its learning rate and KL
    coefficient would ruin a real model.

    Raises:
        JobError: the job was made for the embedded engine.
    """
    if all(get(job, path) == value for path, value in _EMBEDDED_RECIPE.items()):
        rate, kl = get(job, LEARNING_RATE), get(job, KL)
        raise JobError(
            f"this job was made for the embedded engine (learning rate {rate}, KL {kl})",
            where,
            "Use this server's default job instead: `--preset default --set model=PATH`, or "
            "Default on the job's screen",
        )


def _check_sections(job: Job, where: str) -> None:
    """Refuse values with which no server starts.

    Raises:
        JobError: a section is not a mapping, or the port is not a number.
    """
    for path in REQUIRED:
        *sections, _ = path.split(".")
        for depth in range(1, len(sections) + 1):
            section = ".".join(sections[:depth])
            if not isinstance(value := get(job, section, {}), Mapping):
                raise JobError(f"`{section}` is {value!r:.60}", where, "Write it as a mapping")
    if (port := get(job, _PORT)) is not None and not isinstance(port, int):
        raise JobError(f"`{_PORT}` is {port!r:.60}", where, "Give a number, or leave the key out")


def check_model(job: Mapping[str, Any], where: str = "job") -> None:
    """Check that a job has a model that an AgentJet server can have.

    Raises:
        ModelError: it has none, or one of the embedded engine.
    """
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


def check_shares(job: Mapping[str, Any], where: str = "job") -> None:
    """Refuse a job whose samples the GPUs cannot share: the trainer of such a job never starts.

    Raises:
        JobError: the samples of a batch cannot be divided by the number of GPUs, or an update has
            fewer samples than there are GPUs.
    """
    tasks, repeats, gpus = _number(job, BATCH), _number(job, REPEAT), world_size(job)
    samples, updates = tasks * repeats, _number(job, "ajet.trainer_common.mini_batch_num")
    if samples % gpus == 0 and samples // updates >= gpus:
        return
    parts = f" in {updates} updates" if updates > 1 else ""
    least = math.lcm(gpus * updates, repeats) // repeats
    raise JobError(
        f"a batch has {samples} samples{parts} (tasks x repeats: {tasks} x {repeats}), which "
        f"{gpus_text(job)} cannot share equally",
        where,
        f"Set the number of GPUs of each node (`{GPUS}`, `--set gpus=N`), or a multiple of "
        f"{least} as `{BATCH}` (`--set batch={least}`)",
    )


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
    logger = get(job, "ajet.trainer_common.logger")
    if variable := _LOGGER_KEYS.get(str(logger)):
        causes.append(f"the logger {logger} without {variable} in the server's environment")
    try:
        check_shares(job)
    except JobError as error:
        causes.append(error.what)
    causes.append(f"fewer GPUs there than the {gpus_text(job)} of the job (`--set gpus=N`)")
    causes.append(f"no model `{one_line(get(job, MODEL, ''), 100)}` there (`--set model=PATH`)")
    return f"Likely causes: {'; '.join(causes)}. {where}"


def _number(job: Mapping[str, Any], path: str) -> int:
    """Return a number of the job, else the server's default."""
    value = get(job, path)
    return value if isinstance(value, int) and value > 0 else int(DEFAULTS[path])


def _required_value(job: Mapping[str, Any], path: str) -> Any:
    if path == _METHOD and _number(job, NODES) > 1:
        return "tcp"  # episodes on other nodes cannot reach a Unix socket
    return copy.deepcopy(REQUIRED[path])


def _lacks(job: Mapping[str, Any], path: str, value: Any) -> bool:
    """Return whether a key is missing; null and an empty list count as missing if `value` is
    required."""
    *sections, last = path.split(".")
    node: Any = job
    for key in sections:
        node = node.get(key) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping) or last not in node:
        return True
    return node[last] in (None, []) and value is not None
