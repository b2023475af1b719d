"""One program, run to its end or killed with all that it started."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mock.targets.base import OUTPUT_CAP
from mock.targets.guard import Guard

GRACE = 1.0
"""Seconds between the asking and the killing, and for a pipe that a leftover child holds open."""
_LOOK = 0.01
_ERRORS_KEPT = 1 << 14
_GUARDS: dict[asyncio.subprocess.Process, Guard] = {}
KEPT = frozenset(("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"))
KEPT |= {"SSL_CERT_DIR", "SSL_CERT_FILE", "VIRTUAL_ENV"}
"""What a program gets of our own environment unasked; nothing that could be a key."""


class TooMuch(Exception):
    """It printed more than is read."""


class NotStarted(Exception):
    """There is no such program, or it may not run; the text says so."""

    def __init__(self, text: str, *, always: bool) -> None:
        self.always = always
        """It will not start for another question either."""
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program."""

    code: int
    """Negative: killed by that signal."""
    out: bytes
    err: bytes

    @property
    def fate(self) -> str:
        """In words."""
        if self.code >= 0:
            return f"ended with code {self.code}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"was killed by signal {-self.code}"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """A small one, as of a terminal without colours; `extra` wins."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT or name.startswith("LC_")
    }
    return {**kept, "TERM": "dumb", "NO_COLOR": "1", "CI": "1", "no_proxy": _LOCAL, **extra}


_LOCAL = "127.0.0.1,localhost,::1"


async def run(
    argv: Sequence[str], *, env: Mapping[str, str], folder: Path, stdin: bytes | None, limit: float
) -> Ran:
    """Run a program without a terminal; it never outlives this call.

    Args:
        argv: The program and its arguments.
        env: All of its environment.
        folder: Where it works.
        stdin: What it reads; None closes its standard input.
        limit: Seconds it may take.

    Raises:
        NotStarted: it cannot be run.
        TooMuch: it printed without end.
        TimeoutError: it took too long; it was killed.
    """
    process = await start(argv, env=env, folder=folder, piped=stdin is not None)
    try:
        async with asyncio.timeout(limit):
            return await _talk(process, stdin)
    finally:
        await kill(process)


async def start(
    argv: Sequence[str], *, env: Mapping[str, str], folder: Path, piped: bool
) -> asyncio.subprocess.Process:
    """Start a program in a session, and so a process group, of its own: it has no terminal to ask.

    Raises:
        NotStarted: it cannot be run.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            cwd=folder,
            stdin=pipe if piped else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            limit=1 << 16,
        )
    except FileNotFoundError as error:
        gone = str(error.filename) == str(folder)
        what = f"there is no folder {folder}" if gone else f"there is no program `{argv[0]}`"
        raise NotStarted(what, always=True) from error
    except PermissionError as error:
        raise NotStarted(f"`{argv[0]}` may not be run", always=True) from error
    except ValueError as error:
        raise NotStarted("a NUL byte cannot be in an argument", always=False) from error
    except OSError as error:
        what = f"`{argv[0]}` did not start: {error.strerror or error}"
        raise NotStarted(what, always=False) from error
    try:
        guard = await Guard.over(process.pid)
    except BaseException:  # cancelled between the two
        await kill(process)
        raise
    if guard is not None:
        _GUARDS[process] = guard
    return process


async def kill(process: asyncio.subprocess.Process) -> None:
    """End a program, its process group and all that descends from it."""
    family = _family(process)
    if process.returncode is None:
        _signal(process.pid, family, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await ended(process)
    _signal(process.pid, family, signal.SIGKILL)
    if process.returncode is None:
        await ended(process)
    transport = getattr(process, "_transport", None)
    if transport is not None:  # a pipe that somebody else still holds is not waited for
        transport.close()
    if (guard := _GUARDS.pop(process, None)) is not None:
        await guard.release()


def _family(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def _signal(group: int, family: Sequence[psutil.Process], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for child in family:
        with contextlib.suppress(psutil.Error):
            child.send_signal(number)


async def _talk(process: asyncio.subprocess.Process, stdin: bytes | None) -> Ran:
    out, err = bytearray(), bytearray()
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.TaskGroup() as group:
        flood: asyncio.Task[bool] = group.create_task(_read(process.stdout, out, OUTPUT_CAP))
        told = group.create_task(_read(process.stderr, err, 0))
        tasks: list[asyncio.Task[Any]] = [flood, told]
        if stdin is not None:
            tasks.append(group.create_task(_write(process, stdin)))
        over = group.create_task(ended(process))
        tasks.append(over)
        while not over.done() and not (flood.done() and flood.result()):
            waited = (over,) if flood.done() else (over, flood)
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if process.returncode is not None:
            await asyncio.wait((flood, told), timeout=GRACE)
        for task in tasks:
            task.cancel()
    if flood.done() and not flood.cancelled() and flood.result():
        raise TooMuch
    return Ran(process.returncode or 0, bytes(out), bytes(err))


async def ended(process: asyncio.subprocess.Process) -> None:
    """Wait for a program's end, whoever still holds its pipes."""
    while process.returncode is None:  # noqa: ASYNC110 - `wait` would wait for the pipes, too
        await asyncio.sleep(_LOOK)


async def _write(process: asyncio.subprocess.Process, data: bytes) -> None:
    pipe = process.stdin
    assert pipe is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(data)
        await pipe.drain()
    pipe.close()


async def _read(pipe: asyncio.StreamReader, into: bytearray, most: int) -> bool:
    """Read to the end; True when it was more than `most`. With 0 the newest is kept, of any."""
    while data := await pipe.read(1 << 16):
        into += data
        if most and len(into) > most:
            return True
        if not most:
            del into[:-_ERRORS_KEPT]
    return False
