"""Weights of the measurements: checkpoints of the engine, and the folders of an AgentJet server.

An engine with checkpoints saves the weights of each measurement under one of two names: the one
that the best verified one does not have, so that a later one never replaces the best.

VERL saves step N in `<checkpoint_base_dir>/<project>/<experiment>/global_step_N`, after update N.
The server reports global step N + 1 while it samples these weights, because its first step is 1.
Files: `actor/model_world_size_W_rank_R.pt` (shards, always), `actor/huggingface/` (configuration
and tokenizer; the weights as well after a merge, or where the job saves `hf_model`).
"""

import logging
import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.job.schema import DEFAULTS, EXPERIMENT, MODEL, PROJECT
from ajet_swarm.job.tree import JobError, get, load_job
from core.commands.spec import NotNow
from core.state import Progress, Server
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import (
    CHECKPOINTS,
    CheckpointResult,
    ask,
    offers,
    refresh_checkpoints,
)

log = logging.getLogger(__name__)

NAMES = ("progress-1", "progress-2")
"""Names of the checkpoints that measurements save."""
SAVE_FREQ: Final = "ajet.trainer_common.save_freq"
BASE_DIR: Final = "ajet.trainer_common.checkpoint_base_dir"
DEFAULT_BASE_DIR: Final = "saved_checkpoints"
UNNAMED: Final = str(DEFAULTS[EXPERIMENT])
"""Experiment name for which a server makes up one from the file and the time."""

PATH_CAP = 1024
"""Maximum length of a path from the operator."""

_STEP = re.compile(r"(?:^|/)global_step_(\d{1,9})(?=/|$)")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SHARD = "model_world_size_*_rank_*.pt"
_AGAIN = "then rewind again"


class NotPossible(NotNow):
    """A rewind is not possible now.

    Attributes:
        command: The merge command that makes it possible; empty for none.
    """

    def __init__(self, what: str, todo: str, command: str = "") -> None:
        super().__init__(what, todo=todo)
        self.command = command


# --- a checkpoint --------------------------------------------------------------------------------


async def save_checkpoint(
    context: ProxyContext, server: ServerHandle, progress: Progress, step: int | None
) -> str:
    """Save the weights of a measurement; return the name of the checkpoint.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        progress: Its measurements so far.
        step: Global step of the sampled weights.

    Returns:
        The name; empty if the server saves no checkpoints, fails to, or has other weights by now.
    """
    best = progress.best
    taken = best.checkpoint if best is not None else ""
    name = next(name for name in NAMES if name != taken)
    try:
        if not await offers(server, CHECKPOINTS):
            return ""
        saved = await ask(server, CheckpointResult, CHECKPOINTS, {"name": name})
        await refresh_checkpoints(context, server)
    except AjetError as error:
        log.warning("%s saves no checkpoint for its look: %s", server.name, error)
        return ""
    # A checkpoint counts the updates in it; its weights sample under the next global step.
    return name if saved.step + 1 == step else ""


# --- the job -------------------------------------------------------------------------------------


def saved_weights(server: Server | None, model: str, step: int | None) -> str:
    """Return where a server given by URL has the weights that it samples under a step.

    Args:
        server: Its state, with the job that was sent last.
        model: The model that it reports; empty if it reports none.
        step: The global step that it reports.

    Returns:
        The model before the first update, else the checkpoint folder; empty if the job does not
        save this step, or if it is unknown: another client started the engine, or the server
        reports another model.
    """
    if step is None:
        return ""
    if step <= 1 and model:
        return model
    if server is None or server.job is None or server.foreign_start:
        return ""
    try:
        job = load_job(server.job.yaml)
    except JobError:  # sent by a version that accepted it
        return ""
    named = get(job, MODEL)
    if model and model != named:
        return ""
    if step <= 1:
        return str(named or "")
    return _saved_folder(job, step - 1)


def _saved_folder(job: Mapping[str, Any], updates: int) -> str:
    """Return the folder in which a job saves the weights after so many updates; may be empty."""
    every = get(job, SAVE_FREQ, DEFAULTS[SAVE_FREQ])
    experiment = get(job, EXPERIMENT)
    if not isinstance(every, int) or every <= 0 or updates % every:
        return ""
    if not experiment or experiment == UNNAMED:
        return ""
    base = PurePosixPath(str(get(job, BASE_DIR) or DEFAULT_BASE_DIR))
    project = str(get(job, PROJECT) or DEFAULTS[PROJECT])
    return str(base / project / str(experiment) / f"global_step_{updates}")


def step_of(path: str) -> int | None:
    """Return the global step under which the weights of a checkpoint folder are sampled; None if
    the path does not name one."""
    matches = _STEP.findall(path)
    return int(matches[-1]) + 1 if matches else None


def checked_path(path: str) -> str:
    """Return a path from the operator, without the slash at its end.

    Raises:
        UsageError: It can be neither a folder on the server nor a model on the hub.
    """
    path = path.strip()
    named = _HUB.fullmatch(path) or (path.startswith("/") and path.strip("/"))
    faults = {
        "is empty": not path,
        f"is longer than {PATH_CAP} characters": len(path) > PATH_CAP,
        "has characters that cannot be printed": not path.isprintable(),
        "contains `${`, which the server replaces": "${" in path,
        "contains `..`": ".." in PurePosixPath(path).parts,
        f"is no full path: `{one_line(path, 80)}`": not named,
    }
    if fault := next((fault for fault, present in faults.items() if present), ""):
        raise UsageError(
            f"the path {fault}",
            "path",
            "Give the full path of the folder on the server, or the name of a model on the hub",
        )
    return str(PurePosixPath("/" + path.strip("/"))) if path.startswith("/") else path


# --- the folder ----------------------------------------------------------------------------------


def model_in(path: str) -> Path | None:
    """Return the folder with configuration and complete weights in a checkpoint folder, in its
    `actor` or in `huggingface`. It blocks: call it in a thread.

    Returns:
        The folder; None if this machine cannot see a folder of that path.

    Raises:
        NotPossible: It holds shards only, an adapter, a model with a file missing or none.
    """
    start, damage = Path(path), None
    try:
        if not start.is_dir():
            return None
        for place in (start, start / "huggingface", start / "actor", start / "actor/huggingface"):
            if (missing := _lacking(place)) is None:
                continue
            if missing:
                damage = damage or _damaged(place, f"{missing} is missing")
                continue
            if (place / "lora_adapter").is_dir() or (place / "adapter_config.json").is_file():
                raise NotPossible(
                    f"{place} holds a LoRA adapter apart from the weights",
                    f"Merge the adapter into the model, {_AGAIN} with the path of the result",
                )
            return place
        if damage is not None:
            raise damage
        for place in (start, start / "actor"):
            megatron = (place / "dist_ckpt").is_dir()
            if megatron or next(place.glob(_SHARD), None) is not None:
                raise NotPossible(
                    f"{place} holds shards only, no config.json with safetensors",
                    f"Merge them on the server's machine, {_AGAIN}",
                    merge_command(str(place), megatron=megatron),
                )
        raise _damaged(start, "it holds neither weights nor shards")
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise _damaged(start, f"it cannot be read: {error}") from error


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder with a model also has its tokenizer."""
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    return any((folder / name).is_file() for name in names)


def _damaged(folder: Path, detail: str) -> NotPossible:
    todo = f"Copy or merge it again, {_AGAIN}; or name another folder as the path"
    return NotPossible(f"{folder} is damaged: {detail}", todo)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def _lacking(folder: Path) -> str | None:
    """Return a file that a folder with safetensors lacks, empty for none; None without any."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if not index.is_file() and not single.is_file():
        return None
    files = {single.name}
    if index.is_file():
        files = {*msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values()}
    missing = (name for name in ("config.json", *sorted(files)) if not (folder / name).is_file())
    return one_line(next(missing, ""), 60)


def merge_command(folder: str, *, megatron: bool = False) -> str:
    """Return the command that writes the weights of a checkpoint folder as safetensors.

    Args:
        folder: The folder with the shards: `.../global_step_N/actor`.
        megatron: The shards are of Megatron, not of FSDP.
    """
    backend = "megatron" if megatron else "fsdp"
    return (
        f"python -m verl.model_merger merge --backend {backend}"
        f" --local_dir {shlex.quote(folder)} --target_dir {shlex.quote(folder + '/huggingface')}"
    )
