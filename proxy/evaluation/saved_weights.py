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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.job.schema import DEFAULTS, EXPERIMENT, MODEL, PROJECT
from ajet_swarm.job.tree import JobError, get, load_job
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
HEADER_CAP = 100 << 20
"""Maximum size of the header of a safetensors file, and of an index, in bytes."""

_STEP = re.compile(r"(?:^|/)global_step_(\d{1,9})(?=/|$)")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SHARD = "model_world_size_*_rank_*.pt"

Content = Literal["complete", "shards", "adapter", "damaged", "missing"]


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder holds, as seen from this machine."""

    content: Content
    path: str
    """`complete`: the folder with the configuration and the weights; `shards`: the folder with the
    shards; else the folder that was inspected."""
    detail: str = ""
    """What is damaged or missing."""
    megatron: bool = False
    """The shards are of Megatron, not of FSDP."""
    tokenizer: bool = True
    """A complete folder also has a tokenizer."""


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


def inspect(path: str) -> Folder:
    """Return what a folder holds. It blocks: call it in a thread.

    Args:
        path: A checkpoint folder, its `actor`, or a folder with configuration and weights.
    """
    start = Path(path)
    try:
        if not start.is_dir():
            return Folder("missing", path)
        damaged = None
        for place in (start, start / "huggingface", start / "actor", start / "actor/huggingface"):
            result = _weights_in(place)
            if result is not None and result.content != "damaged":
                return result
            damaged = damaged or result
        shards = _shards_in(start)
        return damaged or shards or Folder("damaged", path, "it holds neither weights nor shards")
    except (OSError, ValueError) as error:
        return Folder("damaged", path, f"it cannot be read: {error}")


def _weights_in(folder: Path) -> Folder | None:
    """Return what a folder holds; None if it has no weights as safetensors."""
    if not folder.is_dir():
        return None
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if not index.is_file() and not single.is_file():
        return None
    try:
        _check_config(folder / "config.json")
        for file in _listed(index) if index.is_file() else (single,):
            _check_safetensors(file)
    except _Damaged as error:
        return Folder("damaged", str(folder), error.what)
    if (folder / "lora_adapter").is_dir() or (folder / "adapter_config.json").is_file():
        return Folder("adapter", str(folder))
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    tokenizer = any((folder / name).is_file() for name in names)
    return Folder("complete", str(folder), tokenizer=tokenizer)


def _shards_in(start: Path) -> Folder | None:
    for place in (start, start / "actor"):
        if (place / "dist_ckpt").is_dir():
            return Folder("shards", str(place), megatron=True)
        if next(place.glob(_SHARD), None) is not None:
            return Folder("shards", str(place))
    return None


class _Damaged(AjetError):
    """A file of a model is missing or damaged."""


def _check_config(file: Path) -> None:
    if not file.is_file():
        raise _Damaged(f"{file.name} is missing")
    if not isinstance(_json(file, file.name), dict):
        raise _Damaged(f"{file.name} is not a JSON object")


def _listed(index: Path) -> Iterator[Path]:
    """Yield the files that an index lists."""
    content = _json(index, index.name)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not names:
        raise _Damaged(f"{index.name} lists no weights")
    for name in sorted({str(file) for file in names.values()}):
        if Path(name).name != name:
            raise _Damaged(f"{index.name} lists {one_line(name, 60)!r}, which is no file beside it")
        yield index.parent / name


def _json(file: Path, name: str) -> Any:
    with file.open("rb") as opened:
        data = opened.read(HEADER_CAP + 1)
    try:
        if len(data) <= HEADER_CAP:
            return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise _Damaged(f"{name} is not JSON")


def _check_safetensors(file: Path) -> None:
    """Check that a file has a header and all the bytes that it describes."""
    name = one_line(file.name, 60)
    if not file.is_file():
        raise _Damaged(f"{name} is missing")
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        head = opened.read(size) if size <= HEADER_CAP else b""
    try:
        header = msgspec.json.decode(head, type=dict[str, dict[str, Any]])
        header.pop("__metadata__", None)
        ends = [tensor["data_offsets"][1] for tensor in header.values()]
        complete = bool(ends) and file.stat().st_size == 8 + size + max(ends)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, RecursionError):
        raise _Damaged(f"{name} is no safetensors file") from None
    if not complete:
        raise _Damaged(f"{name} is cut off, or has other bytes than its header describes")


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


def actor_of(folder: str) -> str:
    """Return the folder with the shards of a checkpoint folder."""
    return folder if folder.endswith("/actor") else f"{folder}/actor"
