"""One program, run to its end or killed together with its descendants.

Its errors go to a file, which nobody has to read while it runs. Beside each program a shell waits
on a pipe that only the mock user holds: after a word on the pipe it exits; when the pipe closes
without a word, the mock user is gone and the shell kills the program's process group. This works
wherever there is a shell, on Linux and macOS.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from abc import abstractmethod
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from ajet_swarm.common.text import one_line, signal_name
from mock.targets.answers import NoAnswer
from mock.targets.base import OUTPUT_CAP, TargetBase
from mock.targets.question import Answer, Patience, Question, Unreachable
from mock.targets.templates import fill

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL, and for a pipe that a leftover child holds open."""
ERROR_CAP = 64 << 20
"""Maximum size of a program's errors in bytes."""
_POLL_INTERVAL = 0.01
_ERROR_BYTES = 1 << 14
_MAX_ERROR = 900
"""Characters of a failure's reason."""
_GUARD = 'read -r word || kill -KILL "-$1"'
_GUARD_PATIENCE = 2.0
INHERITED = frozenset(
    (
        *("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"),
        *("SSL_CERT_DIR", "SSL_CERT_FILE", "VIRTUAL_ENV"),
    )
)
"""Environment variables that a program inherits; none of them can be a key."""


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
        return f"was killed by {signal_name(-self.code)}"


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return a minimal environment, as of a terminal without colours; `extra` has priority."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith("LC_")
    }
    return {**inherited, "TERM": "dumb", "NO_COLOR": "1", "CI": "1", "no_proxy": _LOCAL, **extra}


_LOCAL = "127.0.0.1,localhost,::1"


class Program:
    """A running program: its own session and process group, no terminal.

    Args:
        process: The program.
        errors: The file of its errors; closed by `kill`.
    """

    def __init__(self, process: Process, errors: IO[bytes]) -> None:
        self.process = process
        self._file = errors
        self._guard: Process | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: Path,
        stdin: int | IO[bytes] = PIPE,
    ) -> "Program":
        """Start a program.

        Raises:
            Unreachable: it can never be run.
            NoAnswer: it did not start this time.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=dict(env),
                cwd=folder,
                stdin=stdin,
                stdout=PIPE,
                stderr=errors,
                start_new_session=True,
                limit=OUTPUT_CAP,
            )
        except (OSError, ValueError) as error:
            errors.close()
            raise _not_started(error, argv[0], folder) from error
        except BaseException:
            errors.close()
            raise
        program = cls(process, errors)
        try:
            program._guard = await _guard(process.pid)
        except BaseException:  # cancelled between the two
            await program.kill()
            raise
        return program

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.returncode

    @property
    def error_size(self) -> int:
        """Bytes of its errors so far."""
        return os.fstat(self._file.fileno()).st_size

    @property
    def errors(self) -> bytes:
        """The newest bytes of its errors, until `kill`."""
        start = max(0, self.error_size - _ERROR_BYTES)
        newest = os.pread(self._file.fileno(), _ERROR_BYTES, start)
        return newest.replace(b"\0", b"")  # a program that opened /dev/stderr left a hole

    async def wait(self) -> None:
        """Wait for its exit, even while other processes hold its pipes."""
        while self.code is None:  # noqa: ASYNC110 - `wait` would wait for the pipes, too
            await asyncio.sleep(_POLL_INTERVAL)

    async def kill(self) -> None:
        """End the program, its process group and all its descendants."""
        descendants = _descendants(self.process)
        if self.code is None:
            _signal(self.process.pid, descendants, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self.wait()
        _signal(self.process.pid, descendants, signal.SIGKILL)
        await self.wait()
        transport = getattr(self.process, "_transport", None)
        if transport is not None:  # do not wait for a pipe that another process holds
            transport.close()
        self._file.close()
        guard, self._guard = self._guard, None
        if guard is not None:
            await _release(guard)


class ProcessTarget(TargetBase):
    """Common part of the targets that are processes; a failed one is not asked again."""

    @abstractmethod
    async def answer(self, question: Question) -> str:
        """Return the answer to a question.

        Raises:
            NoAnswer: there is none; gives the reason.
            TimeoutError: the time is up; the process was killed.
            Unreachable: there will be none for any question.
        """

    async def ask(self, question: Question, patience: Patience) -> Answer | None:
        began = time.monotonic()
        self.warn_dropped_messages(question)
        text, error = "", ""
        try:
            text = await self.answer(question)
        except NoAnswer as reason:
            error = one_line(self.hide(str(reason)), _MAX_ERROR)
        except TimeoutError:
            error = f"no answer within {self._shared.timeout:g} s: killed"
        except OSError as fault:
            what = f"its files cannot be used: {fault.strerror or fault}"
            raise Unreachable(what, str(self._shared.path)) from fault
        except Unreachable as fault:
            raise Unreachable(self.hide(fault.what), str(self._shared.path), fault.todo) from fault
        return Answer(text=text, error=error, seconds=time.monotonic() - began)

    def variables(self, values: Mapping[str, Any], templates: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of `env`, and of `set` with its templates filled."""
        own = {name: self._env[name] for name in self._shared.env}
        return {**own, **{name: fill(text, values) for name, text in templates.items()}}


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
        Unreachable: it can never be run.
        NoAnswer: it did not start this time, or printed without end.
        TimeoutError: it took too long and was killed.
    """
    out = bytearray()
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        source = DEVNULL if stdin is None else given
        program = await Program.start(argv, env=env, folder=folder, stdin=source)
        assert program.process.stdout is not None
        try:
            async with asyncio.timeout(limit), asyncio.TaskGroup() as group:
                reading = group.create_task(_read(program.process.stdout, out))
                while program.code is None and not _is_too_much(program, out):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_INTERVAL)
                if program.code is not None:  # a leftover child may hold the pipe
                    await asyncio.wait([reading], timeout=GRACE)
                reading.cancel()
            if _is_too_much(program, out):
                raise NoAnswer(f"it printed more than {OUTPUT_CAP >> 20} MB: killed")
            errors = program.errors
        finally:
            await program.kill()
    return ProcessResult(program.code or 0, bytes(out), errors)


async def _read(pipe: asyncio.StreamReader, into: bytearray) -> None:
    while len(into) <= OUTPUT_CAP and (data := await pipe.read(1 << 16)):
        into += data


def _is_too_much(program: Program, out: bytearray) -> bool:
    return len(out) > OUTPUT_CAP or program.error_size > ERROR_CAP


def _not_started(error: OSError | ValueError, name: str, folder: Path) -> Exception:
    if isinstance(error, FileNotFoundError):
        gone = str(error.filename) == str(folder)
        return Unreachable(
            f"there is no folder {folder}" if gone else f"there is no program `{name}`"
        )
    if isinstance(error, PermissionError):
        return Unreachable(f"`{name}` may not be run")
    if isinstance(error, ValueError):
        return NoAnswer("a NUL byte cannot be in an argument")
    return NoAnswer(f"`{name}` did not start: {error.strerror or error}")


def _descendants(process: Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def _signal(group: int, descendants: Sequence[psutil.Process], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for child in descendants:
        with contextlib.suppress(psutil.Error):
            child.send_signal(number)


async def _guard(group: int) -> Process | None:
    """Start the guard of a process group; return None where there is no shell."""
    with contextlib.suppress(OSError):
        return await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GUARD, "sh", str(group)),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    return None


async def _release(guard: Process) -> None:
    """End the guard of a group that has ended."""
    try:
        async with asyncio.timeout(_GUARD_PATIENCE):
            await guard.communicate(b"over\n")
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            guard.kill()
        await guard.wait()
