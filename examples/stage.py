"""Processes of an example in its own folder: engine, fake vLLM, mock user."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from ajet_swarm.common.errors import AjetError
from core.runtime.home import Home, running
from core.state import Server
from proxy.control.client import ControlClient

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT = 60.0
"""Maximum seconds for the start of a process on a busy machine."""
STOP_LIMIT = 10.0
POLL_SECONDS = 1.0
"""Seconds between two looks at a process that runs to its end; each reads the whole state."""


class StageError(AjetError):
    """A process of the example failed."""


class Stage:
    """Processes of one example; leaving the context ends them all, also on Ctrl-C and SIGTERM.

    Args:
        keep: Folder for settings, journal, logs and checkpoints; a temporary one when None.
    """

    def __init__(self, keep: Path | None = None) -> None:
        self._temporary = None if keep else tempfile.TemporaryDirectory(prefix="ajet-example-")
        self.folder = keep.resolve() if keep else Path(self._temporary.name)  # type: ignore[union-attr]  # one of them is there
        self.home = Home.open(self.folder / "home")
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AJET")},
            "AJET_CONSOLE_HOME": str(self.home.root),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def __enter__(self) -> Self:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *error: object) -> None:
        # A second Ctrl-C must not leave processes behind.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for _, child in reversed(self._children):
                _stop(child)
            if self._temporary is not None:
                self._temporary.cleanup()
        finally:
            signal.signal(signal.SIGINT, before)

    # --- processes ------------------------------------------------------------------------------

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a program with its output in `NAME.log`."""
        with (self.home.logs / f"{name}.log").open("ab") as log, _undisturbed():
            child = subprocess.Popen(
                command,
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours; they are ended in order
            )
            self._children.append((name, child))
        return child

    def serve(self, role: str, *args: str) -> str:
        """Start `ajet-console ROLE` on a free port; return its address."""
        child = self.start(role, sys.executable, "-m", "console", "run", role, "--port", "0", *args)

        def address() -> str:
            info = running(self.home, role)
            return info.url if info is not None and info.pid == child.pid else ""

        return self.wait(role, child, address)

    def wait(self, name: str, child: subprocess.Popen[bytes], poll: Callable[[], str]) -> str:
        """Wait until `poll` returns a non-empty text, and return it.

        Raises:
            StageError: the process ended, or no text was returned in time.
        """
        end = time.monotonic() + START_LIMIT
        while not (text := poll()):
            if child.poll() is not None:
                raise StageError(f"{name} ended with {child.returncode}", where=self.log(name))
            if time.monotonic() > end:
                raise StageError(f"{name} is not up after {START_LIMIT:g} s", where=self.log(name))
            time.sleep(0.05)
        return text

    def log(self, name: str) -> str:
        """Return the end of a process's output."""
        with contextlib.suppress(OSError):
            return (self.home.logs / f"{name}.log").read_text(errors="replace")[-1500:].strip()
        return ""

    def until_ended(
        self, name: str, child: subprocess.Popen[bytes], limit: float, on_poll: Callable[[], None]
    ) -> None:
        """Call `on_poll` repeatedly until a process has ended.

        Raises:
            StageError: it failed, or ran longer than `limit` seconds.
        """
        end = time.monotonic() + limit
        while child.poll() is None:
            if time.monotonic() > end:
                raise StageError(f"{name} ran for more than {limit:g} s", where=self.log(name))
            on_poll()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(POLL_SECONDS)
        on_poll()
        if child.returncode:
            raise StageError(f"{name} ended with {child.returncode}", where=self.log(name))

    # --- requests -------------------------------------------------------------------------------

    async def server(self, proxy: str) -> Server:
        """Return the embedded engine's state from the fake vLLM."""
        async with ControlClient(proxy, self.home.token()) as control:
            return next(iter((await control.snapshot()).servers.values()))


def say(text: str) -> None:
    """Print one line and flush it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def exit_code(name: str, run: Callable[[], None]) -> int:
    """Run an example; return the exit code, and print why it ended early."""
    try:
        run()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; all processes are ended\n")
        return 130
    except (AjetError, ExceptionGroup, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{name}: {error_text(error)}\n")
        return 1
    return 0


def on_stage(name: str, keep: Path | None, run: Callable[[Stage], None]) -> int:
    """Run an example on a stage of its own; return the exit code."""

    def staged() -> None:
        with Stage(keep) as stage:
            run(stage)

    return exit_code(name, staged)


def error_text(error: BaseException) -> str:
    """Return the first cause in a group of errors as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM, so that no process is started and then forgotten."""
    came: list[int] = []
    kinds = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(kind, lambda number, _: came.append(number)) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a program and its children with SIGTERM, then SIGKILL."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(STOP_LIMIT)
            return
