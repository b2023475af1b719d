"""Common parts of examples with their own clients: the engine, its updates, the shared diary."""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ajet_swarm import AgentJetJob, SwarmClient
from ajet_swarm.common.errors import UsageError
from ajet_swarm.protocol.schemas import EngineState
from examples.stage import Stage, StageError, say

UPDATING = EngineState.ROLLING_POST.wire, EngineState.WEIGHT_SYNCING.wire
LOOK = 0.1
"""Seconds between two checks of `until`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Time limits of a run.

    Attributes:
        idle: Seconds without a call after which a server takes an episode back.
        patience: Seconds that a start, a free episode or an update may take.
    """

    idle: float
    patience: float


REAL = Pace(idle=240.0, patience=1800.0)
"""Limits for a named server, where loading the weights or an update takes minutes."""
OWN_PATIENCE = 180.0
"""Limits for an example's own embedded engine on a busy machine."""


def seconds(text: str) -> float:
    """Parse a flag's value: seconds above 0."""
    number = float(text)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(text)
    return number


def add_pace(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a `Pace`."""
    parser.add_argument(
        "--idle",
        type=seconds,
        metavar="S",
        help="without a call after which a server takes an episode back; 240 where a server is "
        "named, so that slow answers live, else less",
    )
    add_patience(parser)


def add_patience(parser: argparse.ArgumentParser) -> None:
    """Add the flag of a `Pace`'s patience."""
    parser.add_argument(
        "--patience",
        type=seconds,
        metavar="S",
        help="for a start, a free episode or an update; 1800 where a server is named, else 180",
    )


def pace_of(args: argparse.Namespace, idle: float, *urls: str) -> Pace:
    """Return the limits from the flags, with defaults that depend on the server.

    Args:
        args: The parsed flags.
        idle: Idle timeout in seconds for an embedded engine.
        urls: Servers that were named by flags, beside `AJET_SWARM_URL`.
    """
    named = any(urls) or os.environ.get("AJET_SWARM_URL")
    usual = REAL if named else Pace(idle, OWN_PATIENCE)
    return Pace(args.idle or usual.idle, args.patience or usual.patience)


def flags(name: str, updates: int) -> argparse.ArgumentParser:
    """Return a parser with the flags that all these examples have."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}")
    parser.add_argument("--updates", type=int, default=updates, metavar="N")
    add_pace(parser)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the processes' folder, with logs, here"
    )
    return parser


def named_servers(args: argparse.Namespace, roles: Sequence[str]) -> dict[str, str]:
    """Return role -> server from the flags; empty when none is named, for our own engines.

    Raises:
        UsageError: some are missing. `AJET_SWARM_URL` names one server alone: which of them
            is not guessed.
    """
    urls = {role: str(getattr(args, role)) for role in roles}
    missing = [f"--{role} URL" for role, url in urls.items() if not url]
    if not missing:
        return urls
    if len(missing) < len(roles):
        raise UsageError("one server of several is missing", todo=f"Give {' '.join(missing)}, too")
    if os.environ.get("AJET_SWARM_URL"):
        raise UsageError(
            f"AJET_SWARM_URL names one server, and this takes {len(roles)}",
            todo=f"Give {' '.join(missing)}, or unset it for embedded engines",
        )
    return {}


def engine_of(stage: Stage, name: str = "embedded", swarm_url: str = "") -> str:
    """Return the server: the named one, `AJET_SWARM_URL`, else our own embedded engine."""
    url = swarm_url or os.environ.get("AJET_SWARM_URL") or stage.serve("engine")
    say(f"look on: ajet-console --watch-only --swarm-url {name}={url}")
    return url


def job_of(batch: int, repeats: int, name: str, **more: Any) -> AgentJetJob:
    """Return a job for the model of `REMOTE_MODEL_PATH`, by default Qwen/Qwen2.5-7B-Instruct, and
    as many GPUs of each node as `REMOTE_ALLOCATE_GPU_PER_NODE` says, by default 8."""
    model = os.environ.get("REMOTE_MODEL_PATH")
    gpus = int(os.environ.get("REMOTE_ALLOCATE_GPU_PER_NODE") or 8)
    return AgentJetJob(
        batch_size=batch, num_repeat=repeats, experiment_name=name, model=model, n_gpu=gpus, **more
    )


def is_embedded(url: str) -> bool:
    """Return whether `url` is an embedded engine, which has routes of its own.

    Raises:
        StageError: the server does not respond.
    """
    try:
        answer = httpx.get(f"{url}/openapi.json", timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise StageError(f"no server answers: {str(error) or type(error).__name__}", url) from error
    return answer.status_code == 200 and "/ajetc/info" in answer.json().get("paths", {})


def updates(url: str, after: int = -1) -> list[dict[str, Any]]:
    """Return figures of the embedded engine's updates; empty for other servers, which have none.

    Raises:
        StageError: the server does not respond.
    """
    address = f"{url}/ajetc/updates"
    try:
        answer = httpx.get(address, params={"after": after}, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise StageError(
            f"the server is gone: {str(error) or type(error).__name__}", url
        ) from error
    records: list[dict[str, Any]] = answer.json() if answer.status_code == 200 else []
    return records


def is_updating(client: SwarmClient) -> bool:
    """Return whether a server trains on a batch, or waits for its last episodes."""
    return client.get_engine_status()[0] in UPDATING


def until(what: str, seconds: float, condition: Callable[[], bool]) -> float:
    """Wait until `condition` returns true; return the seconds waited.

    Raises:
        StageError: it was not true in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise StageError(f"{what}: not after {seconds:g} s")
        time.sleep(LOOK)
    return time.monotonic() - began


def read_diary(path: Path) -> list[dict[str, Any]]:
    """Return the lines written by all clients, oldest first."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def left_claimed(client: SwarmClient) -> int:
    """Return the number of episodes that any client still holds."""
    return sum(one.claimed for one in client.get_episode_buffer())
