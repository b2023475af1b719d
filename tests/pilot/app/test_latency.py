"""Over a slow line, keys typed ahead of the screen reach the right target once."""

import asyncio
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from console.screens.rate.ballot import shown_order

ROOT = Path(__file__).parents[3]
DELAY = 0.2
"""Seconds each way."""
F2, F3, CTRL_Q = b"\x1bOQ", b"\x1bOR", b"\x11"

pytestmark = pytest.mark.process


@dataclass
class SlowLine:
    """A terminal at the other end of a line that takes its time."""

    master: int
    process: subprocess.Popen[bytes]
    output: bytearray = field(default_factory=bytearray)

    async def type(self, keys: bytes) -> None:
        """Keys arrive after the delay, all at once as they were typed."""
        await asyncio.sleep(DELAY)
        os.write(self.master, keys)

    async def read(self) -> None:
        """Output is read after the delay; meanwhile no more is read."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the other end is gone
            while chunk := await loop.run_in_executor(None, os.read, self.master, 16_384):
                await asyncio.sleep(DELAY)
                self.output += chunk

    async def until(self, words: bytes) -> None:
        """Wait until they were painted."""
        await self.when(lambda: words in self.output)

    async def when(self, done: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(100):
            while not done():
                assert self.process.poll() is None, self.output[-2000:]
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        """The exit code."""
        async with asyncio.timeout(100):
            while (code := self.process.poll()) is None:
                await asyncio.sleep(0.02)
        return code


@asynccontextmanager
async def slow_line(ordered: Path) -> AsyncIterator[SlowLine]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.pty.console", str(ordered)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    os.close(slave)
    line = SlowLine(master, process)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(line.read())
            try:
                yield line
            finally:
                process.kill()  # the line ends with it
                process.wait()
    finally:
        os.close(master)


def order_of(number: int) -> tuple[int, ...]:
    return shown_order(f"g{number:04}", range(4))


def sent_commands(ordered: Path) -> list[tuple[str, dict[str, Any]]]:
    """Orders so far: name and arguments."""
    if not ordered.exists():
        return []
    return [tuple(json.loads(line)) for line in ordered.read_text().splitlines()]


def votes(ordered: Path) -> list[tuple[str, str, Any]]:
    return [
        (args["group_id"], args["rating"], args.get("order"))
        for name, args in sent_commands(ordered)
        if name == "group.rate"
    ]


EXPECTED = [
    ("g0001", "best", [order_of(1)[1]]),
    ("g0002", "ranking", [order_of(2)[place] for place in (2, 0, 3, 1)]),
    ("g0003", "scores", None),
    ("g0004", "best", [order_of(4)[0]]),
    ("g0005", "skip", None),
    ("g0006", "tie", None),
]
KEYS = (b"2\r", b"3142", b"s9036", b"1\r", b"kk", b"tt")


@pytest.mark.parametrize("way", ["one burst", "key by key"])
async def test_votes_typed_ahead_reach_the_right_group_once(way: str, tmp_path: Path) -> None:
    ordered = tmp_path / "ordered.json"
    async with slow_line(ordered) as line:
        await line.until(b"to rate")
        if way == "one burst":  # typed before the screen it is meant for was ever seen
            await line.type(F3 + b"".join(KEYS))
        else:
            await line.type(F3)
            for key in b"".join(KEYS):
                await line.type(bytes([key]))
        await line.when(lambda: len(votes(ordered)) >= len(EXPECTED))
        await line.type(CTRL_Q)
        assert await line.ended() == 0
    assert votes(ordered) == EXPECTED


async def test_keys_for_a_dialog_never_reach_the_screen_below(tmp_path: Path) -> None:
    ordered = tmp_path / "ordered.json"
    async with slow_line(ordered) as line:
        await line.until(b"to rate")
        await line.type(F2 + b"jx" + b"3y" + b"jm")  # abort the second with a reason, mark the next
        await line.when(lambda: "group.mark" in [name for name, _ in sent_commands(ordered)])
        await line.type(CTRL_Q)
        assert await line.ended() == 0
    orders = sent_commands(ordered)
    names = [name for name, _ in orders]
    assert names.count("group.abort") == 1
    assert orders[names.index("group.abort")][1]["reason"] == "debugging"
    assert names.count("group.mark") == 1
    assert "group.rate" not in names
