"""Common parts of examples with their own clients: the engine, its updates, the shared diary."""

import argparse
import json
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from ajet_swarm import AgentJetJob, Result, SwarmClient, Task
from ajet_swarm.common.errors import UsageError
from ajet_swarm.protocol.schemas import EngineState
from examples.stage import Stage, StageError, say

T = TypeVar("T")

SUMS = Path(__file__).resolve().parent / "math" / "sums.jsonl"
IDLE_OF_SEVERAL = 20.0
"""Idle seconds after which an example's own engines take an episode back, where there are two."""
IDLE_HELP = "seconds without a call after which a server takes an episode back"
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


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of a flag's value: a whole number from `least` on."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"give at least {least}")
        return int(text)

    return number


def flags(
    name: str, updates: int | None, least: int = 1, *, idle: bool = True, roles: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Return a parser with the flags that these examples have in common.

    Args:
        name: The module below `examples`.
        updates: Default of `--updates`; None where a file says it.
        least: Least value of it.
        idle: Whether there is `--idle`.
        roles: Servers that flags name.
    """

    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}")
    add = parser.add_argument
    add("--updates", type=at_least(least), default=updates, metavar="N")
    if idle:
        add("--idle", type=seconds, metavar="S", help=IDLE_HELP + "; 240 on a named server")
    text = "for a start, a free episode or an update; 1800 on a named server, else 180"
    add("--patience", type=seconds, metavar="S", help=text)
    add("--keep", type=Path, metavar="DIR", help="keep the processes' folder, with logs, here")
    for role in roles:
        add(f"--{role}", default="", metavar="URL", help="its server; else embedded")
    return parser


def named_servers(args: argparse.Namespace, roles: Sequence[str]) -> dict[str, str]:
    """Return role -> server from the flags; empty when none is named, for our own engines.

    Raises:
        UsageError: some are missing. `AJET_SWARM_URL` names one server alone: which of them
            is not guessed.
    """
    urls = {role: str(getattr(args, role)) for role in roles}
    missing = " ".join(f"--{role} URL" for role, url in urls.items() if not url)
    if not missing:
        return urls
    if any(urls.values()):
        raise UsageError("one server of several is missing", todo=f"Give {missing}, too")
    if os.environ.get("AJET_SWARM_URL"):
        what = f"AJET_SWARM_URL names one server, and this takes {len(roles)}"
        raise UsageError(what, todo=f"Give {missing}, or unset it for embedded engines")
    return {}


def servers_of(
    args: argparse.Namespace, roles: Sequence[str], stack: ExitStack
) -> tuple[dict[str, str], Pace]:
    """Return role -> server, named by flags or embedded until `stack` ends, and the limits.

    Raises:
        UsageError: some are missing.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: gives all back
    named = named_servers(args, roles)
    urls = {
        role: named.get(role)
        or stack.enter_context(Stage(args.keep and args.keep / role)).serve("engine")
        for role in roles
    }
    names = " ".join(f"--swarm-url {role}={url}" for role, url in urls.items())
    say(f"look on: ajet-console --watch-only {names}")
    return urls, pace_of(args, IDLE_OF_SEVERAL, *named.values())


def engine_of(stage: Stage, name: str = "embedded", swarm_url: str = "") -> str:
    """Return the server: the named one, `AJET_SWARM_URL`, else our own embedded engine."""
    url = swarm_url or os.environ.get("AJET_SWARM_URL") or stage.serve("engine")
    say(f"look on: ajet-console --watch-only --swarm-url {name}={url}")
    return url


@contextmanager
def started(url: str, name: str, batch: int, repeats: int, pace: Pace) -> Iterator[SwarmClient]:
    """Yield a client of a server whose engine is started with a job."""
    with SwarmClient(url, name=name) as client:
        job = job_of(batch, repeats, name)
        client.auto_sync_train_config_and_start_engine(job, timeout=pace.patience)
        yield client


def job_of(batch: int, repeats: int, name: str, **more: Any) -> AgentJetJob:
    """Return a job for the model of `REMOTE_MODEL_PATH`, by default Qwen/Qwen2.5-7B-Instruct, and
    as many GPUs of each node as `REMOTE_ALLOCATE_GPU_PER_NODE` says, by default 8."""
    env = os.environ.get
    model, gpus = env("REMOTE_MODEL_PATH"), int(env("REMOTE_ALLOCATE_GPU_PER_NODE") or 8)
    return AgentJetJob(
        batch_size=batch, num_repeat=repeats, experiment_name=name, model=model, n_gpu=gpus, **more
    )


def is_embedded(url: str) -> bool:
    """Return whether `url` is an embedded engine, which has routes of its own.

    Raises:
        StageError: the server does not respond.
    """
    return "/ajetc/info" in (_asked(url, "/openapi.json") or {}).get("paths", {})


def updates(url: str, after: int = -1) -> list[dict[str, Any]]:
    """Return figures of the embedded engine's updates; empty for other servers, which have none.

    Raises:
        StageError: the server does not respond.
    """
    return _asked(url, f"/ajetc/updates?after={after}") or []


def _asked(url: str, path: str) -> Any:
    """Return a server's JSON; None without such a route."""
    try:
        answer = httpx.get(url + path, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise StageError(f"no server answers: {str(error) or type(error).__name__}", url) from error
    return answer.json() if answer.status_code == 200 else None


def is_updating(client: SwarmClient) -> bool:
    """Return whether a server trains on a batch, or waits for its last episodes."""
    return client.get_engine_status()[0] in UPDATING


def sum_batches(batch: int, most: int) -> Iterator[list[Task]]:
    """Yield up to `most` lists of `batch` small sums as tasks."""
    rows = [json.loads(line) for line in SUMS.read_text("utf-8").splitlines()]
    draw = random.Random(7)
    for number in range(most):
        yield [
            Task(main_query=row["question"], task_id=f"{number}/{row['id']}", metadata=row)
            for row in draw.sample(rows, batch)
        ]


def values_of(results: Sequence[Result[Task, T]]) -> list[T]:
    """Return the values of a batch's episodes that succeeded.

    Raises:
        StageError: none did.
    """
    values = [result.value for result in results if result.value is not None]
    if not values:
        raise StageError("a batch without one episode", str(results[0].error))
    return values


def until(what: str, seconds: float, condition: Callable[[], bool]) -> None:
    """Wait until `condition` returns true.

    Raises:
        StageError: it was not true in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise StageError(f"{what}: not after {seconds:g} s")
        time.sleep(LOOK)


def reach(client: SwarmClient, step: int, seconds: float, on_done: Callable[[int], None]) -> None:
    """Wait for a step; call `on_done` with each completed one.

    Raises:
        StageError: one took longer than `seconds`.
    """
    while (now := client.get_global_step()) < step:
        until(f"step {now + 1}", seconds, lambda now=now: client.get_global_step() > now)  # type: ignore[misc]  # bound at once
        on_done(now)


def left_claimed(client: SwarmClient) -> int:
    """Return the number of episodes that any client still holds."""
    return sum(record.claimed for record in client.get_episode_buffer())
