"""One program, run to its end or killed together with its descendants."""

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
from mock.targets.guard import ProcessGroupGuard

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, and for a pipe that a leftover child holds open."""
_POLL_INTERVAL = 0.01
_ERROR_BYTES = 1 << 14
_GUARDS: dict[asyncio.subprocess.Process, ProcessGroupGuard] = {}
INHERITED = frozenset(
    (
        *("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"),
        *("SSL_CERT_DIR", "SSL_CERT_FILE", "VIRTUAL_ENV"),
    )
)
"""Environment variables that a program inherits; none of them can be a key."""


class TooMuchOutput(Exception):
    """The program printed more than `OUTPUT_CAP` bytes."""


class NotStarted(Exception):
    """The program does not exist or cannot be run; the text gives the reason."""

    def __init__(self, text: str, *, always: bool) -> None:
        self.always = always
        """True when it will not start for other questions either."""
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """Result of a program."""

    code: int
    """Exit code; negative when killed by that signal."""
    out: bytes
    err: bytes

    @property
    def fate(self) -> str:
        """Exit code or signal as text."""
        if self.code >= 0:
            return f"ended with code {self.code}"
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"was killed by signal {-self.code}"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return a minimal environment, as of a terminal without colours; `extra` has priority."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith("LC_")
    }
    return {**inherited, "TERM": "dumb", "NO_COLOR": "1", "CI": "1", "no_proxy": _LOCAL, **extra}


_LOCAL = "127.0.0.1,localhost,::1"


async def run(
    argv: Sequence[str], *, env: Mapping[str, str], folder: Path, stdin: bytes | None, limit: float
) -> ProcessResult:
    """Run a program without a terminal; it never outlives this call.

    Args:
        argv: The program and its arguments.
        env: Its whole environment.
        folder: Working directory.
        stdin: Its input; None closes its standard input.
        limit: Time limit in seconds.

    Raises:
        NotStarted: it cannot be run.
        TooMuchOutput: it printed without end.
        TimeoutError: it took too long and was killed.
    """
    process = await start(argv, env=env, folder=folder, piped=stdin is not None)
    try:
        async with asyncio.timeout(limit):
            return await _communicate(process, stdin)
    finally:
        await kill(process)


async def start(
    argv: Sequence[str], *, env: Mapping[str, str], folder: Path, piped: bool
) -> asyncio.subprocess.Process:
    """Start a program in its own session and process group, without a terminal.

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
        guard = await ProcessGroupGuard.start(process.pid)
    except BaseException:  # cancelled between the two
        await kill(process)
        raise
    if guard is not None:
        _GUARDS[process] = guard
    return process


async def kill(process: asyncio.subprocess.Process) -> None:
    """End a program, its process group and all its descendants."""
    descendants = _descendants(process)
    if process.returncode is None:
        _signal(process.pid, descendants, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await wait_for_exit(process)
    _signal(process.pid, descendants, signal.SIGKILL)
    if process.returncode is None:
        await wait_for_exit(process)
    transport = getattr(process, "_transport", None)
    if transport is not None:  # do not wait for a pipe that another process holds
        transport.close()
    if (guard := _GUARDS.pop(process, None)) is not None:
        await guard.release()


def _descendants(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def _signal(group: int, descendants: Sequence[psutil.Process], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for child in descendants:
        with contextlib.suppress(psutil.Error):
            child.send_signal(number)


async def _communicate(process: asyncio.subprocess.Process, stdin: bytes | None) -> ProcessResult:
    out, err = bytearray(), bytearray()
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.TaskGroup() as group:
        stdout_task: asyncio.Task[bool] = group.create_task(_read(process.stdout, out, OUTPUT_CAP))
        stderr_task = group.create_task(_read(process.stderr, err, 0))
        tasks: list[asyncio.Task[Any]] = [stdout_task, stderr_task]
        if stdin is not None:
            tasks.append(group.create_task(_write(process, stdin)))
        exit_task = group.create_task(wait_for_exit(process))
        tasks.append(exit_task)
        while not exit_task.done() and not (stdout_task.done() and stdout_task.result()):
            waited = (exit_task,) if stdout_task.done() else (exit_task, stdout_task)
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if process.returncode is not None:
            await asyncio.wait((stdout_task, stderr_task), timeout=GRACE)
        for task in tasks:
            task.cancel()
    if stdout_task.done() and not stdout_task.cancelled() and stdout_task.result():
        raise TooMuchOutput
    return ProcessResult(process.returncode or 0, bytes(out), bytes(err))


async def wait_for_exit(process: asyncio.subprocess.Process) -> None:
    """Wait for a program's exit, even while other processes hold its pipes."""
    while process.returncode is None:  # noqa: ASYNC110 - `wait` would wait for the pipes, too
        await asyncio.sleep(_POLL_INTERVAL)


async def _write(process: asyncio.subprocess.Process, data: bytes) -> None:
    pipe = process.stdin
    assert pipe is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(data)
        await pipe.drain()
    pipe.close()


async def _read(pipe: asyncio.StreamReader, into: bytearray, most: int) -> bool:
    """Read to the end; return True when it was more than `most`. With 0, keep only the newest
    bytes."""
    while data := await pipe.read(1 << 16):
        into += data
        if most and len(into) > most:
            return True
        if not most:
            del into[:-_ERROR_BYTES]
    return False
