"""Processes of the proxy bench, and the measurement of one figure."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil

from bench.proxy_cost.stub import REPEAT
from tests.support.stack import Stack, until

SETTLE = 0.6
"""Seconds between the last answer and the measurement: ends and the journal continue after it."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Cost of one round, and the latency of its users."""

    users: int
    requests: int
    seconds: float
    cpu: float
    """Milliseconds of CPU per request, of all processes of the proxy."""
    p50: float
    p99: float
    errors: int
    left: int
    episodes: dict[str, int]
    """Counters of the stub: claims, chats, ends, aborts, lost, open."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def unaccounted(self) -> int:
        """Number of episodes not claimed, called and ended exactly once, of answered requests."""
        expected, seen = self.requests * REPEAT, self.episodes
        wrong = sum(abs(seen[name] - expected) for name in ("claims", "chats", "ends"))
        return wrong + seen["lost"] + seen["open"]


@contextlib.contextmanager
def child(module: str, *args: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process of the bench that prints its port."""
    command = [sys.executable, "-m", module, *args]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SSL_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class Subject:
    """A proxy to measure."""

    name: str
    pid: int
    port: int

    def cpu(self) -> float:
        """Return the seconds of CPU used by its processes."""
        times = [process.cpu_times() for process in self._processes()]
        return sum(time.user + time.system for time in times)

    def files(self) -> int:
        """Return the number of open files and sockets of its processes."""
        return sum(process.num_fds() for process in self._processes())

    def resident(self) -> float:
        """Return the memory of its processes in MB."""
        return sum(process.memory_info().rss for process in self._processes()) / 1e6

    def _processes(self) -> list[psutil.Process]:
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]


class Stub:
    """Client of the instant stub."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._url = f"http://127.0.0.1:{port}/stub"

    def delay(self, milliseconds: float) -> None:
        """Set the duration of completions."""
        httpx.post(f"{self._url}/delay/{milliseconds:g}").raise_for_status()

    def counts(self) -> dict[str, int]:
        """Return its counters since its start."""
        result: dict[str, int] = httpx.get(self._url).json()
        return result


class Load:
    """Client of the users of one proxy."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def round(self, **order: float) -> dict[str, Any]:
        """Send one order to `bench.proxy_cost.load`."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        process.stdin.flush()
        result: dict[str, Any] = msgspec.json.decode(process.stdout.readline())
        return result


@contextlib.contextmanager
def load(port: int, users: int, *more: str) -> Iterator[Load]:
    """Start a number of users of a port."""
    command = [sys.executable, "-m", "bench.proxy_cost.load", str(port), "--users", str(users)]
    pipe = subprocess.PIPE
    process = subprocess.Popen([*command, *more], stdin=pipe, stdout=pipe, text=True)
    try:
        yield Load(process)
    finally:
        process.terminate()
        process.wait(10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def settled(stub: Stub) -> dict[str, int]:
    """Return the stub's counters once nothing is claimed, but after 10 s at the latest."""
    end = time.monotonic() + 10
    while (result := stub.counts())["open"] and time.monotonic() < end:
        time.sleep(0.1)
    return result


def measure(subject: Subject, stub: Stub, users: int, *more: str, **order: float) -> Figures:
    """Measure one figure from idle to idle, so that it contains everything that a request causes.

    Args:
        subject: Whose CPU.
        stub: What it talks to.
        users: How many.
        more: Flags of `bench.proxy_cost.load`.
        order: `seconds` or `requests`.
    """
    with load(subject.port, users, *more) as crowd:
        crowd.round(requests=8 if order.get("requests") else 4 * users + 100)
        before = settled(stub)
        time.sleep(SETTLE)
        cpu = subject.cpu()
        seen = crowd.round(**order)
        time.sleep(SETTLE)
        cpu = subject.cpu() - cpu
        after = settled(stub)
    requests = max(seen["requests"], 1)
    return Figures(
        users=users,
        requests=requests,
        seconds=seen["seconds"],
        cpu=cpu * 1000 / requests,
        p50=seen["p50"],
        p99=seen["p99"],
        errors=seen["errors"],
        left=seen["left"],
        episodes={name: after[name] - before[name] for name in after},
    )


@contextlib.contextmanager
def our_proxy(stub: Stub, folder: Path, keep_bytes: int | None = None) -> Iterator[Subject]:
    """Start `ajet-console run proxy` with journal, events and built-in rewards, without a console.

    Args:
        stub: The server.
        folder: For its home, `home`.
        keep_bytes: Limit of the journal; None for the default.
    """
    url = f"http://127.0.0.1:{stub.port}"
    with Stack(folder / "home", forks=False) as stack:
        if keep_bytes is not None:
            stack.environment["AJET_CONSOLE__JOURNAL__KEEP_BYTES"] = str(keep_bytes)
        info = stack.proxy("--swarm-url", url)
        until("the proxy serves", lambda: httpx.get(f"{info.url}/health").status_code == 200)
        yield Subject("ours", info.pid, info.port)
        stack.stop("proxy")


@contextlib.contextmanager
def stand_in(name: str, stub: Stub, *more: str) -> Iterator[Subject]:
    """Start `bench.proxy_cost.floor` or `bench.proxy_cost.naive` with its flags."""
    with child(f"bench.proxy_cost.{name}", str(stub.port), *more) as (process, port):
        address = ("127.0.0.1", port)
        until("it listens", lambda: _listens(address))
        yield Subject(name, process.pid, port)


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
