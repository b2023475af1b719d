"""What the examples with clients of their own share: an engine to use, its updates, their diary."""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from examples.stage import Stage, StageError, say
from swarm import AgentJetJob, SwarmClient

LOOK = 0.05
"""Seconds between two looks of `until`."""


def flags(name: str, updates: int) -> argparse.ArgumentParser:
    """The flags all of them have."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}")
    parser.add_argument("--updates", type=int, default=updates, metavar="N")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the processes' folder, with logs, here"
    )
    return parser


def engine_of(stage: Stage, name: str = "embedded", swarm_url: str = "") -> str:
    """The server to use: the one named, `AJET_SWARM_URL`, else an embedded engine of our own."""
    url = swarm_url or os.environ.get("AJET_SWARM_URL") or stage.serve("engine")
    say(f"look on: ajet-console --watch-only --swarm-url {name}={url}")
    return url


def job_of(batch: int, repeats: int, name: str, **more: Any) -> AgentJetJob:
    """A job that trains the model of `REMOTE_MODEL_PATH`, or the server's default."""
    model = os.environ.get("REMOTE_MODEL_PATH")
    return AgentJetJob(
        batch_size=batch, num_repeat=repeats, experiment_name=name, model=model, **more
    )


def updates(url: str, after: int = -1) -> list[dict[str, Any]]:
    """Figures of the embedded engine's updates; none of another server, which does not tell."""
    answer = httpx.get(f"{url}/ajetc/updates", params={"after": after}, timeout=10, trust_env=False)
    found: list[dict[str, Any]] = answer.json() if answer.status_code == 200 else []
    return found


def until(what: str, seconds: float, look: Callable[[], bool]) -> float:
    """Wait until `look` says so; seconds waited.

    Raises:
        StageError: it did not come in time.
    """
    began = time.monotonic()
    while not look():
        if time.monotonic() - began > seconds:
            raise StageError(f"{what}: not after {seconds:g} s")
        time.sleep(LOOK)
    return time.monotonic() - began


def read_diary(path: Path) -> list[dict[str, Any]]:
    """The lines that all clients wrote, oldest first."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def left_claimed(client: SwarmClient) -> int:
    """Episodes that some client still holds."""
    return sum(one.claimed for one in client.get_episode_buffer())
