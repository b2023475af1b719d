"""Client processes of an example, and the diary that all of them append to."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ajet_swarm import SwarmClient, SwarmError
from ajet_swarm.client.synchronous import result
from examples.ask import Asker
from examples.stage import Stage
from examples.swarming import IDLE_HELP, REAL, Pace, seconds


class Diary:
    """A file of JSON lines that several processes append to.

    Args:
        path: Where it is; made when it is missing.
    """

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, **facts: Any) -> None:
        """Append one line, atomically even if this process is killed."""
        line = {"what": what, "at": time.time(), **facts}
        os.write(self._file, (json.dumps(line) + "\n").encode())


def read_diary(path: Path) -> list[dict[str, Any]]:
    """Return the lines written by all clients, oldest first."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def client_flags(name: str, last: int) -> argparse.ArgumentParser:
    """Return a parser with the flags that all client processes have."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{name}.client")
    add = parser.add_argument
    add("--swarm-url", default="", help="else AJET_SWARM_URL")
    add("--diary", required=True, help="file that all clients append to")
    add("--batch", type=int, default=10, help="tasks of a batch")
    add("--repeats", type=int, default=4, help="episodes of a task")
    add("--until", type=int, default=last, help="last step to work on")
    add("--idle", type=seconds, default=REAL.idle, help=IDLE_HELP)
    return parser


def start_client(
    stage: Stage,
    name: str,
    module: str,
    url: str,
    job: tuple[int, int, int],
    pace: Pace,
    *more: str,
) -> subprocess.Popen[bytes]:
    """Start a client process with its diary in the stage's folder.

    Args:
        stage: Whose process it becomes.
        name: Of its log.
        module: The example.
        url: The server.
        job: Tasks of a batch, episodes of a task, and the last step to work on.
        pace: The time limits.
        more: Further flags.
    """
    batch, repeats, last = map(str, job)
    command = [sys.executable, "-m", f"examples.{module}.client", "--swarm-url", url]
    command += ["--batch", batch, "--repeats", repeats, "--until", last, "--idle", str(pace.idle)]
    return stage.start(name, *command, "--diary", str(stage.folder / "diary.jsonl"), *more)


def run_client(
    args: argparse.Namespace, name: str, work: Callable[[SwarmClient, Asker], Callable[[], None]]
) -> int:
    """Run one client; return the exit code.

    Args:
        args: The parsed flags.
        name: Of the client, as the server shows it.
        work: Returns what each of its threads does, until it returns or raises.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: releases all episodes
    try:
        with SwarmClient(args.swarm_url, name=name) as client, Asker() as asker:
            thread = work(client, asker)
            with ThreadPoolExecutor(args.threads) as pool:
                try:
                    for future in [pool.submit(thread) for _ in range(args.threads)]:
                        result(future)
                except KeyboardInterrupt:
                    client.close()  # gives all back, and ends the threads
                    raise
    except SwarmError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0
