"""Parent of the process that runs one episode; gives the episode back however that process ends.

Code under test may call `os._exit`, crash in a library or hang. The child reports its episode and
its regular end; its exit code is meaningful only after a regular end.
"""

import asyncio
import contextlib
import json
import math
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

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.waits import BEAT
from ajet_swarm.protocol.errors import SwarmError

GRACE = 7
"""Seconds that the child has to give back its episode after a signal."""
BACK = 4.0
"""Seconds that the parent has to give it back on behalf of the child."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class ChildReport:
    """All that a child has reported."""

    server: str = ""
    client: str = ""
    item: str = ""
    episode: str = ""
    step: int = 0
    finished: bool = False
    """The child ended regularly."""
    code: int = 0
    """Exit code: reported by the child if it finished, else the system's, -N for signal N."""
    seconds: float = 0.0
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Position -> fields of a `RecordedCall`."""

    @property
    def killed(self) -> bool:
        """Whether a signal ended the child."""
        return self.code < 0

    @property
    def how(self) -> str:
        """Description of how the child ended."""
        if not self.killed:
            return f"exit code {self.code}, as with os._exit({self.code})"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class ReportWriter:
    """Writer of a child's reports.

    Args:
        number: Open file descriptor; None to write nothing.
    """

    def __init__(self, number: int | None) -> None:
        self._number = number

    def write(self, **entry: object) -> None:
        """Write fields of `ChildReport`, or one `call` with its position `place`."""
        if self._number is not None:
            with contextlib.suppress(OSError):  # a full disk must not stop the episode
                os.write(self._number, json.dumps(entry, default=str).encode() + b"\n")


def run_guarded(words: Sequence[str], died: Callable[[ChildReport], None]) -> int:
    """Run `python -m ajet_swarm.debug WORDS` and wait for it; forward signals to it.

    Args:
        words: Command-line arguments.
        died: Called with the report if the child ended unexpectedly.

    Returns:
        The child's exit code; 1 if it ended unexpectedly, 130 after a signal.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile() as file:
        descriptor = file.fileno()
        # The child must find the same modules as this process.
        python = [sys.executable, "-P"] if sys.flags.safe_path else [sys.executable]
        command = [*python, "-m", "ajet_swarm.debug", *words, "--receipt", str(descriptor)]
        code, stopping = _run(command, descriptor)
        report = _read_report(file)
    if report.finished:
        return report.code
    report.code, report.seconds = code, time.monotonic() - began
    if report.client:
        _give_back(report)
    if stopping:
        return 130
    died(report)
    return 1


def _run(command: Sequence[str], descriptor: int) -> tuple[int, bool]:
    """Run a command; return its exit code, and whether this process received a signal.

    The signal is forwarded to the child, which is killed if it ignores it.
    """
    child: subprocess.Popen[bytes] | None = None
    stopping = False
    kill_at = math.inf

    def end(number: int, _: FrameType | None) -> None:
        nonlocal stopping, kill_at
        if not stopping:
            stopping, kill_at = True, time.monotonic() + GRACE
            if child is not None:
                child.terminate()

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        child = subprocess.Popen(command, pass_fds=[descriptor])
        if stopping:
            child.terminate()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):  # wake up to handle signals
                return child.wait(BEAT), stopping
            if time.monotonic() >= kill_at:
                child.kill()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read_report(file: BinaryIO) -> ChildReport:
    """Return the child's report, without an incomplete last line."""
    file.seek(0)
    report = ChildReport()
    for line in file:
        if not line.endswith(b"\n"):
            break
        try:
            entry = json.loads(line)
        except ValueError:  # cut by a full disk
            continue
        if "call" in entry:
            report.calls[entry["place"]] = entry["call"]
            continue
        for name, value in entry.items():
            setattr(report, name, value)
    return report


def _give_back(report: ChildReport) -> None:
    """Give back the child's episode on its behalf."""
    try:
        asyncio.run(_abort_held(report))
    except (SwarmError, TimeoutError) as error:
        sys.stderr.write(
            f"the episode could not be given back; the server takes it back when idle: {error}\n"
        )


async def _abort_held(report: ChildReport) -> None:
    from ajet_swarm.http.transport import HttpTransport  # aiohttp takes long to import

    async with asyncio.timeout(BACK), HttpTransport() as transport:
        wire = SwarmWire(report.server, transport, report.client)
        for one in await wire.buffer(timeout=BACK):
            if one.claimed and one.client_uuid == report.client:
                await wire.abort(one.episode_uuid, timeout=BACK)
