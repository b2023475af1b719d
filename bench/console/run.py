"""Common parts of the console bench: amount of work, stand-in, terminal, table rows."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from bench.console.terminal import TerminalProgram
from core.runtime.home import Home

OVERVIEW, REQUESTS = "\x1bOP", "\x1bOQ"
"""Bytes of the keys F1 and F2."""
PROBE = 0.02
_crowded: list[float] = []


@dataclass(frozen=True, slots=True)
class Form:
    """Amount of work."""

    paints: int = 7
    idle: float = 10.0
    live: float = 12.0
    keys: int = 200
    requests: int = 100_000


QUICK = Form(3, 3.0, 3.0, 50, 10_000)


class Proxy:
    """Client of the stand-in."""

    def __init__(self, home: Home, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.token = home.token()
        self.args = ["--attach", self.url, "--token-file", str(home.token_file)]

    def order(self, name: str, **args: Any) -> int:
        """Change what it sends; return the number of events created so far."""
        answer = httpx.post(f"{self.url}/bench/{name}", json=args, trust_env=False, timeout=30)
        return int(answer.json()["sent"])


@contextlib.contextmanager
def stand_in(home: Home) -> Iterator[Proxy]:
    """Start and stop a stand-in."""
    command = [sys.executable, "-m", "bench.console.feed", str(home.root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Proxy(home, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


@contextlib.contextmanager
def attached(home: Home, proxy: Proxy, place: str) -> Iterator[TerminalProgram]:
    """Open a console that follows the stand-in, idle on one of its screens."""
    with TerminalProgram(["-m", "console", *proxy.args], home) as program:
        program.expect("ROLLING")
        program.type(place)
        program.rest(1.5)
        yield program


def quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def say(name: str, figure: str, note: str = "") -> None:
    """Print one row of the table."""
    print(f"| {name:46} | {figure:>11} | {note:60} |", flush=True)
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < PROBE:
        pass
    _crowded.append((time.monotonic() - began) / PROBE)


def crowding() -> float:
    """Return the slowdown by other load: mean of a busy loop's time over its CPU time."""
    return sum(_crowded) / len(_crowded)
