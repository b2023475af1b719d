"""Starts, watches and stops the processes of a home: engine, proxy, mock user.

A child lives in a session of its own and logs to `<home>/logs/<role>.log`, so it outlives the
console when the operator leaves it running; who looks for it later finds it by the home's run file.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from console.processes import exists, group_of, is_zombie, send, send_group
from core.errors import AjetError
from core.home import Home, RunInfo, running
from core.settings import Settings
from core.text import plain, redact

ROLES = ("engine", "proxy", "mock")
GRACE: Mapping[str, float] = {"engine": 5.0, "proxy": 15.0, "mock": 5.0}
"""Seconds a process gets to end in order; the proxy finishes what is in flight."""
ROTATE_BYTES = 5 * 1024 * 1024
"""A log that is larger when its process starts becomes `<role>.log.1`."""
LAST_LINES = 5
_LOOK_EVERY = 0.05
_TAIL_BYTES = 64 * 1024
_LINE_CAP = 500

Phase = Literal["stopped", "starting", "running", "stopping", "exited", "attached"]
CommandBuilder = Callable[[str, Sequence[str]], Sequence[str]]
"""Role and further arguments -> the whole command line."""


class ChildFailed(AjetError):
    """A process could not be started, or ended before it was ready."""


@dataclass(frozen=True, slots=True)
class ChildState:
    """One process of the home, as last seen."""

    role: str
    phase: Phase = "stopped"
    """`exited` ended unasked; `attached` runs but was started elsewhere."""
    pid: int | None = None
    exit_code: int | None = None
    """Of a child of ours that ended; the negative signal number when killed."""
    since: float = 0.0
    """When it entered the phase, Unix seconds."""
    url: str = ""
    last_lines: tuple[str, ...] = ()
    """The end of its log; of a process that ended only what it wrote itself."""

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self.phase not in ("stopped", "exited")

    @property
    def detail(self) -> str:
        """Why it ended, or what it said last; one line, may be empty."""
        last = self.last_lines[-1] if self.last_lines else ""
        if self.phase != "exited":
            return last
        return f"{exit_text(self.exit_code)}{': ' if last else ''}{last}"

    @property
    def tail(self) -> tuple[str, ...]:
        """The same as `last_lines`."""
        return self.last_lines


def exit_text(code: int | None) -> str:
    """How a process ended, for people."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


@dataclass(slots=True)
class _Child:
    """What is remembered of one role."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    process: subprocess.Popen[bytes] | None = None
    args: tuple[str, ...] = ()
    log_start: int = 0
    """Size of the log when the process was started."""
    state: ChildState = field(default_factory=lambda: ChildState(""))
    log_mark: tuple[int, int] = (0, 0)
    """Inode and size of the log when its end was last read."""


class Supervisor:
    """The processes of one home. Lives on one event loop; starts nothing by itself.

    Args:
        home: Where they run and log.
        settings: What a child needs to know is passed on to it.
        command: Makes a child's command line; `ajet-console ROLE` when left out.
        environment: Of the children; this process's own when left out.
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
        self._children: dict[str, _Child] = {}

    # --- doing -----------------------------------------------------------------------------------

    async def start(self, role: str, args: Sequence[str] = ()) -> None:
        """Start a process unless one of that role runs in the home; `wait_ready` waits for it.

        Args:
            role: `engine`, `proxy` or `mock`.
            args: Further arguments of `ajet-console ROLE`.

        Raises:
            ChildFailed: the operating system refuses.
        """
        child = self._child(role)
        async with child.lock:
            if self.state(role).alive:
                return
            child.args = tuple(args)
            command = [*self._command(role, child.args)]
            try:
                process, start = await asyncio.to_thread(self._spawn, role, command)
            except OSError as error:
                raise ChildFailed(
                    f"{role} cannot be started: {error.strerror or error}", command[0]
                ) from error
            child.process, child.log_start = process, start
            child.state = ChildState(role, "starting", process.pid, since=time.time())

    async def stop(self, role: str, grace: float | None = None) -> None:
        """End a process, ours or not: SIGTERM, later SIGKILL to its whole group.

        Args:
            role: Which.
            grace: Seconds between the two; `GRACE` of the role when left out.
        """
        seconds = GRACE.get(role, 5.0) if grace is None else grace
        child = self._child(role)
        async with child.lock:
            before = self.state(role)
            if not before.alive or before.pid is None:
                child.state = replace(before, phase="stopped")
                return
            pid = before.pid
            group = group_of(pid)
            child.state = replace(before, phase="stopping", since=time.time())
            send(pid, signal.SIGTERM)
            if not await self._gone(child, pid, seconds):
                send_group(group, pid, signal.SIGKILL)
                await self._gone(child, pid, 5.0)
            send_group(group, None, signal.SIGKILL)
            code = child.process.returncode if child.process is not None else None
            child.process = None
            child.state = ChildState(
                role, "stopped", None, code, time.time(), last_lines=before.last_lines
            )

    async def restart(self, role: str, grace: float | None = None) -> None:
        """Stop a process and start it with the arguments it had."""
        await self.stop(role, grace)
        await self.start(role, self._child(role).args)

    async def stop_all(self, grace: float | None = None) -> None:
        """End everything in the home; the mock user first, the engine last."""
        for role in reversed(ROLES):
            await self.stop(role, grace)

    def release(self) -> None:
        """Leave the children running and forget them."""
        for child in self._children.values():
            if child.process is not None:
                child.process.returncode = 0  # Popen warns of a child it was not told to leave
                child.process = None

    # --- seeing ----------------------------------------------------------------------------------

    def find(self, role: str) -> RunInfo | None:
        """Who has the role in this home and says where it listens; None when nobody does."""
        try:
            data = (self.home.run / f"{role}.json").read_bytes()
            told = msgspec.json.decode(data, type=RunInfo)
        except (OSError, msgspec.MsgspecError):
            return None
        # Looking takes the role's lock for an instant: never where nobody can hold it anyway.
        return running(self.home, role) if exists(told.pid) else None

    async def wait_ready(self, role: str, timeout: float = 60.0) -> RunInfo:
        """Wait until the process says where it listens.

        Raises:
            ChildFailed: it ended before that, with exit code and last log lines, or it takes
                longer than `timeout`.
        """
        until = time.monotonic() + timeout
        while (info := self.find(role)) is None:
            state = self.state(role)
            if not state.alive and (info := self.find(role)) is None:
                lines = "\n  ".join(("", *state.last_lines))
                raise ChildFailed(
                    f"{role} {exit_text(state.exit_code)}{lines}", str(self.log(role))
                )
            if time.monotonic() > until:
                raise ChildFailed(
                    f"{role} is not ready after {timeout:g} s",
                    str(self.log(role)),
                    "Look at its log, or start it again",
                )
            await asyncio.sleep(_LOOK_EVERY)
        return info

    def poll(self) -> Mapping[str, ChildState]:
        """Look at every role; cheap, to be called now and then."""
        return {role: self.state(role) for role in ROLES}

    def state(self, role: str) -> ChildState:
        """Look at one role."""
        child = self._child(role)
        before = child.state
        found = self._look(child, role)
        if found.phase != before.phase or found.pid != before.pid:
            found = replace(found, since=time.time())
        child.state = self._with_lines(child, found)
        return child.state

    def log(self, role: str) -> Path:
        """The log file of a role."""
        return self.home.logs / f"{role}.log"

    def tail(self, role: str, n: int = 50) -> list[str]:
        """The last `n` lines of a role's log, safe to show."""
        return _last_lines(self.log(role), n)

    # --- inside ----------------------------------------------------------------------------------

    def _child(self, role: str) -> _Child:
        child = self._children.get(role)
        if child is None:
            child = self._children[role] = _Child(state=ChildState(role))
        return child

    def _look(self, child: _Child, role: str) -> ChildState:
        before, process = child.state, child.process
        if before.phase == "stopping":
            return before
        if process is not None and (code := process.poll()) is not None:
            send_group(process.pid, None, signal.SIGKILL)  # what it left behind
            child.process = process = None
            before = replace(before, phase="exited", pid=None, exit_code=code)
        info = self.find(role)
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
            return replace(before, phase="stopped", pid=None, url="")
        return replace(before, pid=None, url="")

    def _with_lines(self, child: _Child, state: ChildState) -> ChildState:
        try:
            found = self.log(state.role).stat()
        except OSError:
            return state
        mark = (found.st_ino, found.st_size)
        if mark == child.log_mark and state.phase == child.state.phase:
            return replace(state, last_lines=child.state.last_lines)
        child.log_mark = mark
        since = child.log_start if state.phase in ("starting", "exited") else 0
        lines = _last_lines(self.log(state.role), LAST_LINES, since)
        return replace(state, last_lines=tuple(lines))

    async def _gone(self, child: _Child, pid: int, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while True:
            if child.process is not None and child.process.pid == pid:
                gone = child.process.poll() is not None
            else:
                gone = not exists(pid) or is_zombie(pid)
            if gone or time.monotonic() > until:
                return gone
            await asyncio.sleep(_LOOK_EVERY)

    def _spawn(self, role: str, command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
        path = self.log(role)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > ROTATE_BYTES:
                path.replace(path.with_name(path.name + ".1"))
        environment = dict(os.environ if self._environment is None else self._environment)
        package = str(Path(__file__).resolve().parent.parent)
        paths = [package, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with path.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        return process, start

    def _own_command(self, role: str, args: Sequence[str]) -> Sequence[str]:
        # -P: a folder `proxy` or `mock` where the operator stands must not be taken for ours.
        program = [sys.executable, "-P", "-m", "console", role, "--home", str(self.home.root)]
        return [*program, *role_args(role, self.settings), *args]


def role_args(role: str, settings: Settings) -> list[str]:
    """The settings a child cannot find itself, as flags: they may come from our command line.

    Keys are left out, because others can read a command line; a child reads them where we did.
    """
    if role == "engine":
        return ["--host", settings.engine.host, "--port", str(settings.engine.port)]
    if role != "proxy":
        return []
    proxy = settings.proxy
    args = ["--host", proxy.host, "--port", str(proxy.port)]
    if settings.rewards.hooks:
        args += ["--hooks", settings.rewards.hooks]
    if isinstance(settings.swarm_url, str):
        return [*args, "--swarm-url", settings.swarm_url]
    for name, url in settings.swarm_url.items():
        args += ["--swarm-url", f"{name}={url}"]
    return args


def _last_lines(path: Path, n: int, since: int = 0) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(since if since <= size else 0, size - _TAIL_BYTES)
            file.seek(start)
            data = file.read()
    except OSError:
        return []
    lines: Iterable[bytes] = data.split(b"\n")[-n - 1 :]
    texts = (plain(redact(line.decode("utf-8", "replace")))[:_LINE_CAP] for line in lines)
    return [text for text in texts if text.strip()][-n:]
