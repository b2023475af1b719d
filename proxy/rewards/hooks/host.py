"""The process that runs an operator's hooks: `python -m proxy.rewards.hooks.host FOLDER`.

With `--channel FD` it serves a proxy. Without, it loads the folder and reports whether that worked,
as a quick check while writing hooks. Nothing that a hook does here (a loop, a crash, `sys.exit`,
too much memory, any output) affects the proxy.
"""

import argparse
import asyncio
import atexit
import contextlib
import faulthandler
import inspect
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.hooks.functions import (
    BadResultError,
    HookFunctions,
    checked_rewards,
    fault_at,
    fault_of_error,
    notes_of,
)
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
    ToChild,
    decode_for_child,
    pack,
    receive,
)
from proxy.rewards.hooks.tutorials import EpisodeResult, Task, install_logs, install_shim

OURS = ("console", "proxy", "engine", "mock", "core", "ajet_swarm")
"""Our own packages; a hook's module of the same name takes precedence."""
GRACE = 1.0
"""Seconds that hooks have to clean up after the proxy is gone."""
CANCELLED = "the call was cancelled by a hook (asyncio.CancelledError)"
"""Also sent when the proxy itself cancelled the call; the proxy then replaces it."""


class TrackedCall:
    """A call that records when it has the thread, because a blocking hook delays the others."""

    def __init__(self, owner: ThreadOwner, id_: int, work: Coroutine[Any, Any, FromChild]) -> None:
        self._owner = owner
        self._id = id_
        self._work = work

    def __await__(self) -> Generator[Any, Any, FromChild]:
        value: Any = None
        error: BaseException | None = None
        while True:
            self._owner.put(self._id, time.monotonic())
            try:
                awaited = self._work.send(value) if error is None else self._work.throw(error)
            except StopIteration as end:
                answer: FromChild = end.value
                return answer
            finally:
                self._owner.put(0)
            value = error = None
            try:
                value = yield awaited
            except BaseException as thrown:  # noqa: BLE001 - passed on, cancellations included
                error = thrown


class HookHost:
    """Reads calls on a thread, runs them on the event loop, and sends their results."""

    def __init__(self, hooks: HookFunctions, channel: socket.socket, page: int) -> None:
        self._hooks = hooks
        self._owner = ThreadOwner(page)
        os.close(page)
        self._channel = channel
        self._write_lock = threading.Lock()
        self._main = threading.get_ident()
        self._calls: dict[int, asyncio.Task[Any]] = {}
        self._tasks = Tasks("hooks")
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._ending = False
        atexit.register(self._at_exit)  # registered before the hooks' own: runs after them

    def run(self) -> int:
        """Load, then serve until the proxy closes the channel; return the exit code."""
        threading.Thread(target=self._read, name="channel", daemon=True).start()
        fault = self._hooks.load()  # outside the running loop: a hook may run its own
        if fault is not None:
            self._send(Failed(0, fault))
            return 1
        self._send(Loaded(0, self._hooks.submit is not None))
        self._loop.run_forever()
        self._loop.run_until_complete(self._tasks.close())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        return 0

    def _at_exit(self) -> None:
        if self._ending:
            end_group()

    def _read(self) -> None:
        """Read calls, on a thread: it notices the end of the proxy while a hook blocks the loop."""
        while (body := receive(self._channel)) is not None:
            message = decode_for_child(body)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process is ending
                self._loop.call_soon_threadsafe(self._handle, message)
            if isinstance(message, CancelCall):
                self._send(Stack(message.id, self._thread_place()))
        self._ending = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        threading.Event().wait(GRACE)
        end_group()

    def _thread_place(self) -> HookFault:
        frames: list[FrameType] = []
        frame = sys._current_frames().get(self._main)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return fault_at("", frames[::-1], self._hooks.folder)

    def _handle(self, message: ToChild) -> None:
        if isinstance(message, CancelCall):
            if (task := self._calls.pop(message.id, None)) is not None:
                task.cancel()  # a call that has not begun sends nothing: the proxy has cancelled it
            return
        work = self._score(message) if isinstance(message, ScoreCall) else self._request(message)
        task = self._tasks.spawn(self._guard(message.id, work), f"call {message.id}")
        self._calls[message.id] = task
        task.add_done_callback(lambda _: self._on_done(message.id, work))

    def _on_done(self, id_: int, work: Coroutine[Any, Any, FromChild]) -> None:
        """Report a call that another hook cancelled before it began."""
        work.close()
        if self._calls.pop(id_, None) is not None:
            self._send(Failed(id_, HookFault(CANCELLED)))

    async def _guard(self, id_: int, work: Coroutine[Any, Any, FromChild]) -> None:
        try:
            answer = await TrackedCall(self._owner, id_, work)
        except BadResultError as error:
            answer = Failed(id_, self._hooks.bad_result(str(error)))
        except asyncio.CancelledError as error:
            fault = fault_of_error(error, self._hooks.folder)
            answer = Failed(id_, msgspec.structs.replace(fault, cause=CANCELLED))
        except BaseException as error:  # noqa: BLE001 - worker's boundary: includes SystemExit
            full = isinstance(error, MemoryError)  # memory stays full: start a new process
            answer = Failed(id_, fault_of_error(error, self._hooks.folder), last=full)
        self._send(answer)
        self._calls.pop(id_, None)
        if isinstance(answer, Failed) and answer.last:
            end_group()

    async def _score(self, call: ScoreCall) -> FromChild:
        assert self._hooks.reward is not None
        results = [
            EpisodeResult(answer.episode_uuid, answer.completion, call.query)
            for answer in call.answers
        ]
        answers = [dict(answer.message) for answer in call.answers]
        value = self._hooks.reward(results, list(answers), call.query)
        if inspect.isawaitable(value):
            value = await value
        rewards = checked_rewards(value, len(answers))
        return Scored(call.id, rewards, notes_of([a.message for a in call.answers], answers))

    async def _request(self, call: RequestCall) -> FromChild:
        assert self._hooks.submit is not None
        task_class: Any = sys.modules["ajet.schema.task"].Task if _has_task() else Task
        task = task_class(task_id=call.task_id, main_query=call.query, metadata=dict(call.metadata))
        value = self._hooks.submit(call.request_id, task)
        if inspect.isawaitable(value):
            value = await value
        positive = isinstance(value, int) and not isinstance(value, bool) and value > 0
        metadata = task.metadata if isinstance(task.metadata, dict) else {}
        return Noted(call.id, metadata, value if positive else None)

    def _send(self, message: FromChild) -> None:
        try:
            frame = pack(message)
        except FrameError as error:
            if not isinstance(message, Scored | Noted):
                raise
            frame = pack(Failed(message.id, HookFault(f"the hook's result {error}")))
        with self._write_lock, contextlib.suppress(OSError):  # the proxy is gone: the reader exits
            self._channel.sendall(frame)


def _has_task() -> bool:
    return hasattr(sys.modules.get("ajet.schema.task"), "Task")


def end_group() -> None:
    """End this process and all that hooks started, if it leads a process group."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def limit_memory(size: int) -> None:
    """Limit the memory that hooks may allocate, in bytes, where the system can; 0: no limit."""
    if size <= 0 or sys.platform == "win32":
        return
    import resource

    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    with contextlib.suppress(ValueError, OSError):  # a lower hard limit, or a system without it
        hard = resource.getrlimit(kind)[1]
        bound = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(kind, (bound, hard))


def prepare(folder: Path) -> None:
    """Set up this process as if the hooks had been started from their own folder."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]  # both are files here
    sys.dont_write_bytecode = True
    for name in list(sys.modules):
        if name.partition(".")[0] in OURS:
            del sys.modules[name]
    sys.argv = [str(folder)]
    sys.path.insert(0, str(folder))
    install_shim()
    install_logs()


def main(argv: list[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(
        prog="python -m proxy.rewards.hooks.host", description="Load and run a folder of hooks."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--channel", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--mark", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    folder = options.folder.resolve()
    if options.channel >= 0:
        os.set_inheritable(options.channel, False)
        os.set_inheritable(options.mark, False)
    prepare(folder)
    limit_memory(options.memory)
    hooks = HookFunctions(folder)
    if options.channel >= 0:
        return HookHost(hooks, socket.socket(fileno=options.channel), options.mark).run()
    fault = hooks.load()
    if fault is None:
        print(f"{folder}: loads")  # noqa: T201 - the result
        return 0
    print(fault.traceback or fault.cause, file=sys.stderr)  # noqa: T201 - the result
    return 1


if __name__ == "__main__":
    sys.exit(main())
