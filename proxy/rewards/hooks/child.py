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
from pathlib import Path

import msgspec

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import signal_name
from proxy.rewards.hooks.protocol import (
    CancelCall,
    Failed,
    FrameError,
    FromChild,
    HookFault,
    Loaded,
    Noted,
    RequestCall,
    ScoreCall,
    Scored,
    Stack,
    ThreadOwner,
    pack,
    read_from_child,
    shared_page,
)
from proxy.rewards.part import HookLimits, PartAbstained

ROOT = Path(__file__).resolve().parents[3]
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from proxy.rewards.hooks.host import main; del sys.path[0]; sys.exit(main())"
)
"""Imports our side of the child from any directory, and removes its folder from the path again."""


class HookError(PartAbstained):
    """A hook could not be loaded or called."""

    def __init__(self, fault: HookFault) -> None:
        self.fault = fault
        super().__init__(**msgspec.structs.asdict(fault))


class CrashError(HookError):
    """The process ended before or during the call, perhaps because of another call."""

    def __init__(self, fault: HookFault, victim: bool) -> None:
        self.victim = victim
        """Whether another call is known to have ended the process."""
        super().__init__(fault)


HookReply = Loaded | Scored | Noted


class HookChild:
    """Starts a process for one version of a folder, sends calls to it, and ends it.

    A task reads from it and reaps the process. `on_end` is called when the child accepts no more
    calls; it may be called twice.
    """

    def __init__(
        self,
        folder: Path,
        version: str,
        limits: HookLimits,
        log: Path | None = None,
        on_end: Callable[["HookChild"], None] = lambda child: None,
    ) -> None:
        self.version = version
        self.has_submit = False
        self.end = ""
        """How the process ended; empty while it runs."""
        self._folder = folder
        self._limits = limits
        self._tasks = Tasks(f"hooks {version}")
        self._log = log
        self._on_end = on_end
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[HookReply]] = {}
        """The results of the calls in progress by id; 0 is the load."""
        self._stacks: dict[int, HookFault] = {}
        self._supervised: set[int] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
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

    async def start(self) -> None:
        """Start the process and wait until the hooks are imported.

        Raises:
            HookError: they cannot be imported, or not in time; the process has ended by then.
        """
        try:
            try:
                reader = await self._connected()
            except OSError as error:
                cause = f"the hooks' process cannot be started: {error}"
                raise HookError(HookFault(cause)) from error
            result = self._expect(0)
            self._tasks.spawn(self._read(reader), "read")
            loaded = await self._wait(result, self._limits.load_seconds)
            if loaded is None:
                limit = f"{self._limits.load_seconds:g} s"
                raise HookError(HookFault(f"the hooks were not loaded within {limit}"))
            self.has_submit = isinstance(loaded, Loaded) and loaded.submit
        except BaseException:
            self._pending.pop(0, None)
            await self.kill()
            raise
        del self._pending[0]

    def _expect(self, id_: int) -> asyncio.Future[HookReply]:
        future: asyncio.Future[HookReply] = asyncio.get_running_loop().create_future()
        self._pending[id_] = future
        return future

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
        future = self._expect(call.id)
        try:
            self._post(call)
            reply = await self._wait(future, self._limits.call_seconds)
            return await self._overdue(call.id, future) if reply is None else reply
        except asyncio.CancelledError:
            self._post(CancelCall(call.id))
            raise
        finally:
            self._pending.pop(call.id, None)
            self._stacks.pop(call.id, None)

    async def _overdue(self, id_: int, future: asyncio.Future[HookReply]) -> HookReply:
        """Cancel a call in the child; kill the process if it cannot be cancelled.

        When calls block the hooks' thread one after another, only this call is given up: the call
        that has the thread is within its limit, and is supervised until then. When no call has the
        thread and the process does not react, the machine may be busy: it gets the limit once more.
        """
        seconds = self._limits.call_seconds
        cause = f"the hook did not answer within {seconds:g} s"
        assert self._thread_owner is not None
        before = self._thread_owner.get()
        self._post(CancelCall(id_))
        try:
            reply = await self._wait(future, self._limits.grace_seconds)
            if reply is None and id_ not in self._stacks and not self._thread_owner.get()[0]:
                reply = await self._wait(future, seconds)
        except CrashError:
            raise
        except HookError as error:
            raise _late(error.fault, cause) from None
        if reply is not None:
            return reply
        self._pending.pop(id_)
        fault = self._stacks.get(id_, HookFault(""))
        owner = running, since = self._thread_owner.get()
        left = seconds - (asyncio.get_running_loop().time() - since)
        if owner != before or (running and left > 0.1 * seconds):
            if running and running not in self._supervised:
                self._supervised.add(running)
                self._tasks.spawn(self._supervise(running, left, fault), "supervise")
            raise _late(fault, f"{cause}: calls block its thread, one after the other")
        await self._kill_blocked(fault, running or id_)
        place = fault if fault.line else self._kill_fault or fault
        if running not in (0, id_):  # another call used the time of this one
            raise CrashError(msgspec.structs.replace(place, cause=self.end), victim=True)
        raise _late(place, f"{cause}; it was killed")

    async def _supervise(self, running: int, left: float, fault: HookFault) -> None:
        """Kill the process if the call that has the thread still has it at its time limit."""
        await asyncio.sleep(left)
        self._supervised.discard(running)
        owner = self._thread_owner
        if owner is not None and not self._ended.is_set() and owner.get()[0] == running:
            await self._kill_blocked(fault, running)

    async def _kill_blocked(self, fault: HookFault, cause_id: int) -> None:
        """Kill the process because of a call; every call that this ends reports the place in it."""
        if self._kill_fault is None or not self._kill_fault.line:
            self._kill_fault = fault
        self._cause_id = self._cause_id or cause_id
        limit = f"{self._limits.call_seconds:g} s"
        await self.kill(f"the hooks' process was killed: a hook blocked it for over {limit}")

    async def _wait(self, future: asyncio.Future[HookReply], seconds: float) -> HookReply | None:
        """Return the result, or None if there is none within so many seconds."""
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
        future = self._pending.get(message.id)
        if isinstance(message, Stack):
            if future is not None:
                self._stacks[message.id] = message.fault
        elif future is not None and not future.done():
            if isinstance(message, Failed):
                future.set_exception(HookError(message.fault))
            else:
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
        self.end = self.end or f"the hooks' process ended ({_how(code)})"
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        place = self._kill_fault or HookFault("")
        self._fail_pending(msgspec.structs.replace(place, cause=self.end), code)
        self._ended.set()
        self._on_end(self)

    def _fail_pending(self, failure: HookFault, code: int) -> None:
        """Fail the pending calls; a single pending call is the cause of the end.

        Of several, the cause is the call that had the thread, unless the system killed the process:
        then any of them may be.
        """
        cause_id = self._cause_id
        if self._thread_owner is not None:
            cause_id = cause_id or (0 if code == -signal.SIGKILL else self._thread_owner.get()[0])
            self._thread_owner.close()
        if not cause_id and len(self._pending) == 1:
            cause_id = next(iter(self._pending))
        for id_, future in self._pending.items():
            if future.done():
                continue
            if self._closing or id_ == cause_id:
                future.set_exception(HookError(failure))
            else:
                future.set_exception(CrashError(failure, victim=cause_id != 0))

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
        await self._tasks.close()


def _how(code: int) -> str:
    """Return how a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    name = signal_name(-code)
    hint = ": perhaps the system ran out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"


def _late(fault: HookFault, cause: str) -> HookError:
    return HookError(msgspec.structs.replace(fault, cause=cause, late=True))


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
