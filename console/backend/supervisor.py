"""Starts, watches and stops the processes of a home: engine, proxy, mock user.

A child runs in its own session and logs to `<home>/logs/<role>.log`, so it survives the console
when the operator leaves it running. A later console finds it through the home's run file.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from ajet_swarm.common.errors import AjetError
from console.backend.processes import (
    PROGRAM,
    Launch,
    exists,
    group_of,
    is_zombie,
    launch_of,
    role_args,
    send,
    send_group,
)
from console.session.logs import failure_line, last_lines
from console.text.causes import exit_text
from core.runtime.home import Home, RunInfo, running
from core.settings import Settings

ROLES = ("engine", "proxy", "mock")
GRACE: Mapping[str, float] = {"engine": 5.0, "proxy": 20.0, "mock": 5.0}
"""Seconds a process gets to shut down. The proxy finishes the requests in flight: 10 s for them and
5 s for the last rewards to a server that does not answer."""
ROTATE_BYTES = 5 * 1024 * 1024
"""A log larger than this when its process starts is renamed to `<role>.log.1`."""
LAST_LINES = 5
_POLL_SECONDS = 0.05
_BOOT_SLACK = 60.0
"""Seconds that may pass between a starting process's last log line and its run file."""

Phase = Literal["stopped", "starting", "running", "stopping", "exited", "attached"]
CommandBuilder = Callable[[str, Sequence[str]], Sequence[str]]
"""Role and further arguments -> the complete command line."""


class ChildFailed(AjetError):
    """A process could not be started, or ended before it was ready."""


@dataclass(frozen=True, slots=True)
class ChildState:
    """One process of the home, as last polled."""

    role: str
    phase: Phase = "stopped"
    """`exited` ended on its own; `attached` runs but was started elsewhere."""
    pid: int | None = None
    exit_code: int | None = None
    """Of a child of ours that ended; the negative signal number when killed; None when unknown."""
    since: float = 0.0
    """When it entered the phase, Unix seconds."""
    url: str = ""
    tail: tuple[str, ...] = ()
    """The end of its log; for a process that ended, only its own lines."""

    @property
    def alive(self) -> bool:
        """Whether the process exists."""
        return self.phase not in ("stopped", "exited")

    @property
    def detail(self) -> str:
        """Why it ended, or its last log line; one line, may be empty."""
        last = self.tail[-1] if self.tail else ""
        if self.phase != "exited":
            return last
        reason = failure_line(self.tail)
        exit_reason = exit_text(self.exit_code)
        if reason:
            return f"{exit_reason}: {reason}"
        return exit_reason


@dataclass(slots=True)
class _Child:
    """What the supervisor stores about one role."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the process is started or stopped."""
    state_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the fields below are read or changed: threads poll, the event loop commands."""
    process: subprocess.Popen[bytes] | None = None
    launch: Launch | None = None
    """How the process polled last was started."""
    known: tuple[int, float] = (0, 0.0)
    """Process id and start time of that process, Unix seconds."""
    log_start: int = 0
    """Size of the log when the process was started."""
    state: ChildState = field(default_factory=lambda: ChildState(""))
    log_mark: tuple[int, int] = (0, 0)
    """Inode and size of the log when its last lines were read."""

    def is_gone(self, pid: int | None) -> bool:
        """Return whether that process has ended."""
        if self.process is not None and self.process.pid == pid:
            return self.process.poll() is not None
        return pid is None or not exists(pid) or is_zombie(pid)


class Supervisor:
    """The processes of one home. One event loop sends commands; any thread may poll.

    `find`, `poll`, `state` and `tail` read files: call them off the event loop.

    Args:
        home: Contains the run files and logs of the processes.
        settings: What a child needs of them is passed to it as flags.
        command: Builds a child's command line; `ajet-console ROLE` when left out.
        environment: Environment of the children; this process's own when left out.
    """

    def __init__(
        self,
        home: Home,
        settings: Settings,
        command: CommandBuilder | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.settings = settings
        self._command = command or self._own_command
        self._environment = environment
        self._children = {role: _Child(state=ChildState(role)) for role in ROLES}
        self._find_lock = threading.Lock()

    # --- commands --------------------------------------------------------------------------------

    async def start(self, role: str, args: Sequence[str] = ()) -> None:
        """Start a process unless the home already runs one of that role; see `wait_ready`.

        Args:
            role: `engine`, `proxy` or `mock`.
            args: Further arguments of `ajet-console ROLE`.

        Raises:
            ChildFailed: the operating system refuses.
        """
        child = self._children[role]
        async with child.lock:
            if (await asyncio.to_thread(self.state, role)).alive:
                return
            child.launch = Launch(tuple(self._command(role, args)))
            await self._launch(role, child.launch)

    async def stop(self, role: str, grace: float | None = None) -> None:
        """Stop a process, ours or not: SIGTERM, later SIGKILL to its whole group.

        Args:
            role: `engine`, `proxy` or `mock`.
            grace: Seconds between the two signals; `GRACE` of the role when left out.
        """
        async with self._children[role].lock:
            await self._end(role, grace)

    async def restart(self, role: str, grace: float | None = None) -> None:
        """Stop a process and start it again with the same command line and port.

        This also works for a process that was started elsewhere.

        Raises:
            ChildFailed: the operating system refuses.
        """
        child = self._children[role]
        async with child.lock:
            await asyncio.to_thread(self.state, role)
            await self._end(role, grace)
            await self._launch(role, child.launch or Launch(tuple(self._command(role, ()))))

    async def stop_all(self, grace: float | None = None) -> None:
        """Stop all processes of the home; the mock user first, the engine last."""
        for role in reversed(ROLES):
            await self.stop(role, grace)

    def release(self) -> None:
        """Leave the children running and forget them."""
        for child in self._children.values():
            with child.state_lock:
                if child.process is not None:
                    child.process.returncode = 0  # else Popen warns that the child still runs
                    child.process = None

    async def output_of(self, role: str, args: Sequence[str]) -> tuple[bytes, int]:
        """Run the command line of `start` to its end; return its output and its exit code.

        Args:
            role: `engine`, `proxy` or `mock`.
            args: Further arguments, with which it ends by itself, such as `--dry-run`.
        """
        process = await asyncio.create_subprocess_exec(
            *self._command(role, args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_with_package(self._environment),
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:  # the caller was cancelled
                process.kill()
        return output, await process.wait()

    # --- state -----------------------------------------------------------------------------------

    def find(self, role: str) -> RunInfo | None:
        """Return the run file of the process that has the role; None when no process has it."""
        try:
            data = (self.home.run / f"{role}.json").read_bytes()
            info = msgspec.json.decode(data, type=RunInfo)
        except (OSError, msgspec.MsgspecError):
            return None
        # `running` takes the role's lock for an instant: skip it when the process is gone.
        if not exists(info.pid):
            return None
        with self._find_lock:  # two threads at once would each find the lock held by the other
            return running(self.home, role)

    async def wait_ready(self, role: str, timeout: float = 60.0) -> RunInfo:
        """Wait until the process has written its run file.

        Raises:
            ChildFailed: the process ended before that (with exit code and last log lines), or it
                takes longer than `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (info := await asyncio.to_thread(self.find, role)) is None:
            state = await asyncio.to_thread(self.state, role)
            if not state.alive and (info := await asyncio.to_thread(self.find, role)) is None:
                lines = "\n  ".join(("", *state.tail))
                raise ChildFailed(
                    f"{role} {exit_text(state.exit_code)}{lines}", str(self.log(role))
                )
            if time.monotonic() > deadline:
                raise ChildFailed(
                    f"{role} is not ready after {timeout:g} s",
                    str(self.log(role)),
                    "Read its log, or start it again",
                )
            await asyncio.sleep(_POLL_SECONDS)
        return info

    def poll(self) -> Mapping[str, ChildState]:
        """Return the state of every role; to be called regularly."""
        return {role: self.state(role) for role in ROLES}

    def state(self, role: str) -> ChildState:
        """Return the state of one role, read from the operating system now."""
        child = self._children[role]
        with child.state_lock:
            before = child.state
            state = self._read_state(child, role)
            if state.phase != before.phase or state.pid != before.pid:
                state = replace(state, since=time.time())
            child.state = self._with_lines(child, state)
            return child.state

    def log(self, role: str) -> Path:
        """Return the log file of a role."""
        return self.home.logs / f"{role}.log"

    def tail(self, role: str, n: int = 50) -> list[str]:
        """Return the last `n` lines of a role's log, safe to show."""
        return last_lines(self.log(role), n)

    # --- internals -------------------------------------------------------------------------------

    async def _launch(self, role: str, launch: Launch) -> None:
        child = self._children[role]
        try:
            await asyncio.to_thread(self._spawn, child, role, launch)
        except OSError as error:
            raise ChildFailed(
                f"{role} cannot be started: {error.strerror or error}", launch.command[0]
            ) from error

    async def _end(self, role: str, grace: float | None) -> None:
        seconds = GRACE.get(role, 5.0) if grace is None else grace
        child = self._children[role]
        before = await asyncio.to_thread(self.state, role)
        if not before.alive or before.pid is None:
            self._set_state(child, replace(before, phase="stopped"))
            return
        pid, group = before.pid, group_of(before.pid)
        self._set_state(child, replace(before, phase="stopping", since=time.time()))
        send(pid, signal.SIGTERM)
        if not await self._wait_gone(child, pid, seconds):
            send_group(group, pid, signal.SIGKILL)
            await self._wait_gone(child, pid, 5.0)
        send_group(group, None, signal.SIGKILL)
        code = child.process.returncode if child.process is not None else None
        child.process = None
        self._set_state(
            child,
            ChildState(role, "stopped", None, code, time.time(), tail=before.tail),
        )

    @staticmethod
    def _set_state(child: _Child, state: ChildState) -> None:
        with child.state_lock:
            child.state = state

    def _read_state(self, child: _Child, role: str) -> ChildState:
        before, process = child.state, child.process
        if before.phase == "stopping":
            if child.lock.locked() or not child.is_gone(before.pid):
                return before
            code = process.returncode if process else None
            before = replace(before, phase="stopped", exit_code=code)  # the stop was interrupted
            child.process = process = None
        if process is not None and (code := process.poll()) is not None:
            send_group(process.pid, None, signal.SIGKILL)  # its remaining children
            child.process = process = None
            before = replace(before, phase="exited", pid=None, exit_code=code)
        info = self.find(role)
        if info is not None and child.known != (info.pid, info.started_at):
            child.known = (info.pid, info.started_at)
            child.launch = launch_of(info) or child.launch  # a dying process has no command line
        if process is not None:
            ready = info is not None and info.pid == process.pid
            return replace(
                before,
                phase="running" if ready else "starting",
                url=info.url if info is not None and ready else "",
            )
        if info is not None:
            return ChildState(role, "attached", info.pid, None, before.since, info.url)
        if before.phase == "attached":
            return self._lost(before)
        return replace(before, pid=None, url="")

    def _lost(self, before: ChildState) -> ChildState:
        """Return the state of an attached process that has ended and was not stopped from here."""
        run_file_left = (self.home.run / f"{before.role}.json").exists()
        # A mock user ends by itself after its last row, and removes its run file.
        phase: Phase = "exited" if run_file_left or before.role != "mock" else "stopped"
        return replace(before, phase=phase, pid=None, exit_code=None, url="")

    def _with_lines(self, child: _Child, state: ChildState) -> ChildState:
        try:
            stat = self.log(state.role).stat()
        except OSError:
            return state
        if child.process is None and stat.st_mtime < child.known[1] - _BOOT_SLACK:
            # The log belongs to an earlier process; this one writes elsewhere.
            return replace(state, tail=())
        mark = (stat.st_ino, stat.st_size)
        if mark == child.log_mark and state.phase == child.state.phase:
            return replace(state, tail=child.state.tail)
        child.log_mark = mark
        since = child.log_start if state.phase in ("starting", "exited") else 0
        lines = last_lines(self.log(state.role), LAST_LINES, since)
        return replace(state, tail=tuple(lines))

    async def _wait_gone(self, child: _Child, pid: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not child.is_gone(pid):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _spawn(self, child: _Child, role: str, launch: Launch) -> None:
        path = self.log(role)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > ROTATE_BYTES:
                path.replace(path.with_name(path.name + ".1"))
        with child.state_lock, path.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=launch.folder,
                env=_with_package(launch.environment or self._environment),
                start_new_session=True,
            )
            child.process, child.log_start = process, start
            child.state = ChildState(role, "starting", process.pid, since=time.time())

    def _own_command(self, role: str, args: Sequence[str]) -> Sequence[str]:
        flags = ["--home", str(self.home.root), *role_args(role, self.settings)]
        return [*PROGRAM, "run", role, *flags, *args]


def _with_package(base: Mapping[str, str] | None) -> dict[str, str]:
    """Return an environment, by default this process's own, in which our packages are found."""
    environment = dict(os.environ if base is None else base)
    package = str(Path(__file__).resolve().parents[2])
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if package not in paths:
        environment["PYTHONPATH"] = os.pathsep.join([package, *paths])
    return environment
