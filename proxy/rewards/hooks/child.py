"""The proxy's side of one process that runs hooks."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.hooks.errors import Crashed, CrashError, HookError, describe_exit
from proxy.rewards.hooks.protocol import (
    CancelCall,
    Failed,
    FrameError,
    FromChild,
    HookFault,
    HookRefused,
    Loaded,
    Noted,
    RequestCall,
    ScoreCall,
    Scored,
    Stack,
    pack,
    read_from_child,
)
from proxy.rewards.hooks.thread_owner import ThreadOwner, shared_page

ROOT = Path(__file__).resolve().parents[3]
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from proxy.rewards.hooks.host import main; del sys.path[0]; sys.exit(main())"
)
"""Imports our side of the child from any directory, and removes its folder from the path again."""


@dataclass(frozen=True, slots=True)
class HookLimits:
    """Time and memory limits of hooks."""

    call_seconds: float = 30.0
    """Limit of one call; then it is cancelled, and the process is killed if that fails."""
    load_seconds: float = 60.0
    """Limit for importing the modules."""
    grace_seconds: float = 1.0
    """Time that a cancelled call has to end by itself."""
    memory_bytes: int = 2 << 30
    """Memory that the process may allocate; 0 for no limit."""
    poll_seconds: float = 0.15
    """Seconds between two checks of the folder."""
    retry_seconds: float = 10.0
    """Seconds between two attempts to load files that fail to load and do not change."""
    log_bytes: int = 16 << 20
    """Size at which the log of the hooks' output is truncated."""


HookReply = Scored | Noted
CallOutcome = FromChild | Crashed
T = TypeVar("T")


class HookChild:
    """Starts a process for one version of a folder, sends calls to it, and ends it.

    The task that reads from it belongs to `readers` and also reaps the process, so it must not be
    cancelled before `close`. `on_end` is called when the child accepts no more calls; it may be
    called twice.
    """

    def __init__(
        self,
        folder: Path,
        version: str,
        limits: HookLimits,
        readers: Tasks,
        log: Path | None,
        on_end: Callable[["HookChild"], None],
    ) -> None:
        self.version = version
        self.has_submit = False
        self.end = ""
        """How the process ended; empty while it runs."""
        self._folder = folder
        self._limits = limits
        self._readers = readers
        self._log = log
        self._on_end = on_end
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[CallOutcome]] = {}
        self._stacks: dict[int, Stack] = {}
        self._supervised: set[int] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._load_result: asyncio.Future[FromChild] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._closing = False
        self._kill_fault: HookFault | None = None
        """Where in the hook the process was killed."""
        self._cause_id = 0
        """Id of the call that ended the process; 0 while that is unknown."""
        self._thread_owner: ThreadOwner | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def ended(self) -> bool:
        """Whether the process has ended and is reaped, or was never started."""
        return self._ended.is_set() or self._process is None

    @property
    def calls(self) -> int:
        """Number of calls in progress."""
        return len(self._pending)

    async def start(self) -> None:
        """Start the process and wait until the hooks are imported.

        Raises:
            HookError: they cannot be imported, or not in time; the process has ended by then.
        """
        try:
            await self._launch()
            result = await self._wait(self._load_result, self._limits.load_seconds)
            if result is None:
                raise HookError(
                    HookFault(f"the hooks were not loaded within {self._limits.load_seconds:g} s")
                )
            if isinstance(result, HookRefused):
                raise HookError(result.fault)
            self.has_submit = isinstance(result, Loaded) and result.submit
        except BaseException:
            await self.kill()
            raise

    async def _launch(self) -> None:
        try:
            reader = await self._connected()
        except OSError as error:
            raise HookError(HookFault(f"the hooks' process cannot be started: {error}")) from error
        self._readers.spawn(self._read(reader), f"hooks {self.version}")

    async def _connected(self) -> asyncio.StreamReader:
        """Start the process and return the stream of its messages."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-c", BOOT, str(ROOT), str(self._folder)]
        command += ["--channel", str(theirs.fileno()), "--memory", str(self._limits.memory_bytes)]
        try:
            with theirs, _output(self._log) as output, shared_page() as page:
                self._thread_owner = ThreadOwner(page)
                command += ["--mark", str(page)]
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs.fileno(), page),
                    start_new_session=True,
                )
            reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return reader

    async def call(self, call: ScoreCall | RequestCall) -> HookReply:
        """Run one call in the child; its `id` is assigned here.

        Raises:
            CrashError: the process ended, possibly because of another call.
            HookError: the call raised, returned an unusable value, took too long, or ended the
                process.
        """
        if self.end:
            raise CrashError(HookFault(self.end), victim=True)
        call = msgspec.structs.replace(call, id=next(self._ids))
        future: asyncio.Future[CallOutcome] = asyncio.get_running_loop().create_future()
        self._pending[call.id] = future
        try:
            self._post(call)
            reply = await self._wait(future, self._limits.call_seconds)
            if reply is None:
                reply = await self._overdue(call.id, future)
        except asyncio.CancelledError:
            self._post(CancelCall(call.id))
            raise
        finally:
            self._pending.pop(call.id, None)
            self._stacks.pop(call.id, None)
        if isinstance(reply, Crashed):
            raise CrashError(reply.fault, reply.victim)
        if isinstance(reply, Failed):
            raise HookError(reply.fault)
        assert isinstance(reply, Scored | Noted)
        return reply

    async def _overdue(self, id_: int, future: asyncio.Future[CallOutcome]) -> CallOutcome:
        """Cancel a call in the child; kill the process if it cannot be cancelled.

        When calls block the hooks' thread one after another, only this call is given up: the call
        that has the thread is within its limit, and is supervised until then.
        """
        limit = f"{self._limits.call_seconds:g} s"
        cause = f"the hook did not answer within {limit}"
        self._post(CancelCall(id_))
        reply = await self._wait(future, self._limits.grace_seconds)
        if isinstance(reply, Failed):
            return Failed(id_, msgspec.structs.replace(reply.fault, cause=cause, late=True))
        if reply is not None:
            return reply
        stack = self._stacks.get(id_, Stack(id_, HookFault("")))
        if stack.running and stack.seconds < 0.9 * self._limits.call_seconds:
            if stack.running not in self._supervised:
                self._supervised.add(stack.running)
                self._readers.spawn(self._supervise(stack), f"supervise {self.version}")
            blocked = f"{cause}: calls block its thread, one after the other"
            return Failed(id_, msgspec.structs.replace(stack.fault, cause=blocked, late=True))
        await self._kill_blocked(stack.fault, stack.running or id_)
        place = stack.fault if stack.fault.line else self._kill_fault or stack.fault
        if stack.running not in (0, id_):  # another call used the time of this one
            return Crashed(msgspec.structs.replace(place, cause=self.end), victim=True)
        return Failed(
            id_, msgspec.structs.replace(place, cause=f"{cause}; it was killed", late=True)
        )

    async def _supervise(self, before: Stack) -> None:
        """Kill the process if the call that has the thread still has it at its time limit."""
        await asyncio.sleep(self._limits.call_seconds - before.seconds)
        self._supervised.discard(before.running)
        owner = self._thread_owner
        if owner is not None and not self.ended and owner.get() == before.running:
            await self._kill_blocked(before.fault, before.running)

    async def _kill_blocked(self, fault: HookFault, cause_id: int) -> None:
        """Kill the process because of a call; every call that this ends reports the place in it."""
        if self._kill_fault is None or not self._kill_fault.line:
            self._kill_fault = fault
        self._cause_id = self._cause_id or cause_id
        limit = f"{self._limits.call_seconds:g} s"
        await self.kill(f"the hooks' process was killed: a hook blocked it for over {limit}")

    async def _wait(self, future: asyncio.Future[T], seconds: float) -> T | None:
        done, _ = await asyncio.wait([future], timeout=seconds)
        return future.result() if done else None

    def _post(self, message: ScoreCall | RequestCall | CancelCall) -> None:
        try:
            frame = pack(message)
        except FrameError as error:
            raise HookError(HookFault(f"the group cannot be sent to the hook: {error}")) from error
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._handle(await read_from_child(reader))
        except (EOFError, OSError):
            pass
        except FrameError as error:
            self.end = f"the hooks' process sent an invalid message: {error}"
        finally:
            await self._finish()

    def _handle(self, message: FromChild) -> None:
        if isinstance(message, Loaded | HookRefused):
            if not self._load_result.done():
                self._load_result.set_result(message)
        elif isinstance(message, Stack):
            if message.id in self._pending:
                self._stacks[message.id] = message
        elif (future := self._pending.get(message.id)) is not None and not future.done():
            future.set_result(message)
        if isinstance(message, Failed) and message.last:
            self.end = self.end or f"the hooks' process gave up: {message.fault.cause}"
            self._cause_id = self._cause_id or message.id
            self._on_end(self)

    async def _finish(self) -> None:
        """Wait for the process to end after its channel is closed; fail the pending calls."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5 if not self._closing else 2.0):
                await self._process.wait()
        self._signal()
        code = await self._process.wait()
        self.end = self.end or f"the hooks' process ended ({describe_exit(code)})"
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        place = self._kill_fault or HookFault("")
        failure = msgspec.structs.replace(place, cause=self.end)
        if not self._load_result.done():
            self._load_result.set_result(HookRefused(failure))
        self._fail_pending(failure, code)
        self._ended.set()
        self._on_end(self)

    def _fail_pending(self, failure: HookFault, code: int) -> None:
        """Fail the pending calls; a single pending call is the cause of the end.

        Of several, the cause is the call that had the thread, unless the system killed the process:
        then any of them may be.
        """
        cause_id = self._cause_id
        if self._thread_owner is not None:
            cause_id = cause_id or (0 if code == -signal.SIGKILL else self._thread_owner.get())
            self._thread_owner.close()
        if not cause_id and len(self._pending) == 1:
            cause_id = next(iter(self._pending))
        for id_, future in self._pending.items():
            if future.done():
                continue
            if self._closing or id_ == cause_id:
                future.set_result(Failed(id_, failure))
            else:
                future.set_result(Crashed(failure, victim=cause_id != 0))

    def _signal(self) -> None:
        """Kill the process and everything it started, which is one process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def kill(self, end: str = "") -> None:
        """End the process at once and wait until it is reaped."""
        if self._process is None or self._ended.is_set():
            return
        self.end = self.end or end
        self._signal()
        if self._writer is None:  # the start was interrupted: no reader task reaps the process
            await self._process.wait()
            self._ended.set()
        else:
            await self._ended.wait()

    async def close(self) -> None:
        """Let the process clean up and end by itself; kill it if it does not."""
        self._closing = True
        self.end = self.end or "the hooks' process was closed"
        if self._writer is not None and not self._ended.is_set():
            self._writer.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await self._ended.wait()
        await self.kill()

    async def retire(self) -> None:
        """Let the calls in progress end within their limits, then close."""
        try:
            if pending := list(self._pending.values()):
                limit = self._limits.call_seconds + self._limits.grace_seconds
                await asyncio.wait(pending, timeout=limit)
        finally:
            await self.close()


@contextlib.contextmanager
def _output(log: Path | None) -> Iterator[int]:
    """Open the destination of the child's output: `log` for appending, or our error stream."""
    if log is None:
        yield 2
        return
    log.parent.parent.mkdir(0o700, parents=True, exist_ok=True)  # the home, which is private
    log.parent.mkdir(exist_ok=True)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
