"""Watches the program that runs one episode: it may end in any way, and what it held is given back.

Code under test calls `os._exit`, crashes in a library or hangs for good. The program leaves word of
what it holds and of its orderly end; without the latter its exit code says nothing.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, BinaryIO

from ajet_swarm.api.engine import AsyncSwarmClient
from ajet_swarm.client.waits import BEAT
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import SwarmError

GRACE = 7
"""Seconds a program that is told to end gets to give back what it holds."""
BACK = 4.0
"""Seconds to give it back in its place."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)


@dataclass(slots=True)
class ChildReport:
    """What a program had said when it was gone."""

    server: str = ""
    client: str = ""
    item: str = ""
    episode: str = ""
    step: int = 0
    over: bool = False
    """It came to its own end."""
    code: int = 0
    """Its own, when it is over; else what the system says: below 0 the signal that ended it."""
    seconds: float = 0.0
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By their place, the fields of a `Call`."""

    @property
    def killed(self) -> bool:
        """A signal ended it."""
        return self.code < 0

    @property
    def how(self) -> str:
        """Its end in words."""
        if not self.killed:
            return f"exit code {self.code}, as with os._exit({self.code})"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class ReportWriter:
    """Where a program leaves word.

    Args:
        number: An open file descriptor; None for nobody who listens.
    """

    def __init__(self, number: int | None) -> None:
        self._number = number

    def write(self, **said: object) -> None:
        """Fields of `ChildReport`, or one `call` and its `place`."""
        if self._number is not None:
            with contextlib.suppress(OSError):  # a full disk must not end the episode
                os.write(self._number, json.dumps(said, default=str).encode() + b"\n")


def run_guarded(words: Sequence[str], died: Callable[[ChildReport], None]) -> int:
    """Run `python -m ajet_swarm.debug WORDS` and wait for it, passing on what ends it.

    Args:
        words: Its arguments.
        died: Called when it was gone without its own end.

    Returns:
        Its exit code; 1 when it was gone, 130 when it was told to end.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as told:
        tell = told.fileno()
        # What is found from here must be found by it, no more and no less.
        alone = ["-P"] if sys.flags.safe_path else []
        command = [sys.executable, *alone, "-m", "ajet_swarm.debug", *words, "--receipt", str(tell)]
        code, asked = _run(command, tell)
        left = _left(told)
    if left.over:
        return left.code
    left.code, left.seconds = code, time.monotonic() - began
    if left.client:
        _give_back(left)
    if asked:
        return 130
    died(left)
    return 1


def _run(command: Sequence[str], tell: int) -> tuple[int, bool]:
    """Its exit code, and whether it was told to end; one that does not heed that is killed."""
    child: subprocess.Popen[bytes] | None = None
    asked = False

    def end(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if number == signal.SIGALRM:
            if child is not None:
                child.kill()
        elif not asked:
            asked = True
            signal.alarm(GRACE)
            if child is not None:
                child.terminate()

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        child = subprocess.Popen(command, pass_fds=[tell])
        if asked:
            child.terminate()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):  # a signal is noticed by then
                return child.wait(BEAT), asked
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _left(told: BinaryIO) -> ChildReport:
    """What it said, up to a line it may have been torn from."""
    told.seek(0)
    left = ChildReport()
    for line in told:
        if not line.endswith(b"\n"):
            break
        try:
            said = json.loads(line)
        except ValueError:  # torn by a full disk
            continue
        if "call" in said:
            left.calls[said["place"]] = said["call"]
            continue
        for name, value in said.items():
            setattr(left, name, value)
    return left


def _give_back(left: ChildReport) -> None:
    """Give back what it held, in its name."""
    try:
        asyncio.run(_given_back(left))
    except (SwarmError, TimeoutError) as error:
        sys.stderr.write(
            f"the episode could not be given back; the server takes it at its idle limit: {error}\n"
        )


async def _given_back(left: ChildReport) -> None:
    async with asyncio.timeout(BACK), HttpTransport() as transport:
        wire = AsyncSwarmClient(left.server, transport, left.client)
        for one in await wire.buffer(timeout=BACK):
            if one.claimed and one.client_uuid == left.client:
                await wire.abort(one.episode_uuid, timeout=BACK)
