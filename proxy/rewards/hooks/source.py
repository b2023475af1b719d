"""A folder of hooks as a source of rewards: run in a process, loaded again when a file changes."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.tasks import Tasks, cancel, keep_running
from ajet_swarm.runtime import SYSTEM
from proxy.rewards.hooks.child import HookChild, HookLimits, HookReply
from proxy.rewards.hooks.errors import CrashError, HookError
from proxy.rewards.hooks.folder import Stamp, digest, stamp, trim_log
from proxy.rewards.hooks.protocol import (
    HookAnswer,
    HookFault,
    Note,
    Noted,
    RequestCall,
    ScoreCall,
    Scored,
)
from proxy.rewards.source import (
    Abstention,
    Answer,
    GroupContext,
    HealthNotifier,
    Listener,
    Part,
    RequestReport,
    Score,
    ScoreSheet,
    SourceHealth,
)

LOAD_WAIT = 3.0
"""Seconds that `start` and `request` wait for hooks that are still loading."""
RESTART_WAIT = 10.0
"""Minimum number of seconds that a group waits for a process to start."""
STABLE_AFTER = 10.0
"""Seconds after which the end of a process counts as the first crash again."""
MAX_CRASHES = 3
"""Crashes in a row after which the next start is delayed."""
SETTLE = 0.04
"""Seconds between two checks that must agree, so that a half-written save is not loaded."""


class HookSource:
    """Runs `on_compute_relative_reward` and `on_user_submit_new_requests` of one folder.

    The newest version that loads is the one that scores. After a save that does not load, the
    previous version keeps scoring and `health` reports the fault. If the old process ends then,
    groups abstain, because its code no longer exists.
    """

    name = "hook"

    def __init__(
        self,
        folder: Path,
        limits: HookLimits | None = None,
        log: Path | None = None,
        clock: Callable[[], float] = SYSTEM.clock.monotonic,
    ) -> None:
        """Args:
        folder: Folder of the hook modules; it may be created later.
        limits: Time and memory limits of the hooks.
        log: File for the output of the hooks; None for the error stream of this process.
        clock: Returns monotonic seconds.
        """
        self.folder = folder.absolute().resolve()
        self._limits = limits or HookLimits()
        self._log = log
        self._clock = clock
        self._tasks = Tasks("hooks")
        self._readers = Tasks("hook readers")
        self._children: list[HookChild] = []
        self._child: HookChild | None = None
        self._loaded_stamp: Stamp | None = None
        """Stamp of the files that were last loaded, or failed to load."""
        self._retry_at = 0.0
        self._loaded_at = 0.0
        self._failures = 0
        self._crashes = 0
        self._loading: asyncio.Task[None] | None = None
        self._check_now = asyncio.Event()
        self._settled = asyncio.Event()
        """Set while no load is in progress."""
        self._retry_lock = asyncio.Lock()
        """Held by a call that may have ended a process, while it is retried."""
        loading = Abstention("hook", "the hooks are still loading", file=str(self.folder))
        self._notifier = HealthNotifier(SourceHealth(False, None, ""))
        self._error = loading

    @property
    def version(self) -> str:
        """Hash of the folder's Python files as they were loaded; empty while no child serves."""
        return self._child.version if self._child else ""

    @property
    def pid(self) -> int:
        """Process id of the serving child; 0 when there is none."""
        return self._child.pid if self._child else 0

    async def start(self) -> None:
        """Begin to load and to watch; wait briefly for the first load to end."""
        self._tasks.spawn(keep_running(self._watch, "the watch over the hooks' files"), "watch")
        await self._wait_settled(LOAD_WAIT)

    async def close(self) -> None:
        """End the child process and reap it; calls in progress abstain."""
        self._child = None
        await self._tasks.close()
        async with asyncio.TaskGroup() as closing:
            for child in self._children:
                closing.create_task(child.close())
        await self._readers.close()

    async def reload(self) -> None:
        """Load the folder again, changed or not; return when it is loaded or has failed to load."""
        self._loaded_stamp = None
        self._settled.clear()
        self._check_now.set()
        await self._wait_settled(self._limits.load_seconds + LOAD_WAIT)

    def health(self) -> SourceHealth:
        """Return whether the newest save is the one that scores; see `SourceHealth`."""
        return self._notifier.current

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` at every change; return a function that removes it."""
        return self._notifier.add(listener)

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Run `on_user_submit_new_requests`, if there is one."""
        if self._child is None:
            await self._wait_settled(LOAD_WAIT)
        child = self._child
        if child is None:
            return RequestReport(metadata, None, self._error)
        if not child.has_submit:
            return RequestReport(metadata)
        try:
            call = RequestCall(0, request_id, task_id, query, dict(metadata))
            _, reply = await self._call(child, call)
        except HookError as error:
            return RequestReport(metadata, None, error.abstention)
        assert isinstance(reply, Noted)
        return RequestReport(reply.metadata, reply.repeat)

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        """Run `on_compute_relative_reward` on one group; a failure is an abstention."""
        started = self._clock()
        version = self.version
        try:
            child = await self._serving()
            version = child.version
            if not ctx.answers:
                raise HookError(HookFault("the group has no answers to score"))
            answers = [_hook_answer(answer) for answer in ctx.answers]
            child, reply = await self._call(child, ScoreCall(0, ctx.query, answers))
            version = child.version
            assert isinstance(reply, Scored)
            rows = zip(ctx.answers, reply.rewards, reply.notes, strict=True)
            scores = tuple(_score(answer, reward, note) for answer, reward, note in rows)
        except HookError as error:
            seconds = self._clock() - started
            return ScoreSheet((), error.abstention, version, seconds)
        return ScoreSheet(scores, None, version, self._clock() - started)

    async def _call(
        self, child: HookChild, call: ScoreCall | RequestCall
    ) -> tuple[HookChild, HookReply]:
        """Run a call; if its process crashes through no known fault of the call, run it once more.

        When it is unknown which call ended the process, the retries take turns, so that a call
        that crashes the process again does so alone.
        """
        try:
            return child, await child.call(call)
        except CrashError as crash:
            turn = contextlib.nullcontext() if crash.victim else self._retry_lock
        async with turn:
            child = await self._serving()
            try:
                return child, await child.call(call)
            except CrashError as crash:
                cause = f"{crash.fault.cause}; retried once, with the same result"
                raise HookError(msgspec.structs.replace(crash.fault, cause=cause)) from crash

    @property
    def extra_seconds(self) -> float:
        """Seconds beyond the time limit that a group may need whose process crashed."""
        return self._limits.call_seconds + self._limits.grace_seconds + RESTART_WAIT

    async def _serving(self) -> HookChild:
        if self._child is None:
            await self._wait_settled(max(self._limits.call_seconds, RESTART_WAIT))
        if self._child is None:
            error = self._error
            raise HookError(HookFault(error.cause, error.traceback, error.file, error.line))
        return self._child

    async def _wait_settled(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()

    async def _watch(self) -> None:
        """Load when the files change, on request, and at intervals while loading fails."""
        while True:
            self._check_now.clear()
            current = await asyncio.to_thread(self._stamp)
            retry = self._child is None and self._clock() >= self._retry_at
            if current != self._loaded_stamp or retry:
                await self._begin_load(current)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.poll_seconds):
                    await self._check_now.wait()

    def _stamp(self) -> Stamp:
        if self._log is not None:
            trim_log(self._log, self._limits.log_bytes)
        return stamp(self.folder)

    async def _begin_load(self, current: Stamp) -> None:
        if self._loading is not None and not self._loading.done():
            if current == self._loaded_stamp:
                return
            await cancel(self._loading)
        for _ in range(20):  # an editor may be in the middle of its save
            await asyncio.sleep(SETTLE)
            later = await asyncio.to_thread(stamp, self.folder)
            if later == current:
                break
            current = later
        if current != self._loaded_stamp:
            self._failures = self._crashes = 0
        self._loaded_stamp = current
        self._loading = self._tasks.spawn(self._load(current), "load")

    async def _load(self, files: Stamp) -> None:
        version = await asyncio.to_thread(digest, self.folder, files)
        child = HookChild(
            self.folder, version, self._limits, self._readers, self._log, self._child_ended
        )
        self._children = [other for other in self._children if not other.ended]
        self._children.append(child)
        try:
            await child.start()
        except HookError as error:
            self._failures += 1
            self._retry_at = self._clock() + self._pause()
            self._fail(error.abstention)
        else:
            self._loaded_at = self._clock()
            old, self._child = self._child, child
            self._notifier.update(SourceHealth(True, None, version))
            if old is not None:
                self._tasks.spawn(old.retire(), f"retire {old.version}")
        self._settled.set()

    def _fail(self, error: Abstention) -> None:
        self._error = error
        self._notifier.update(SourceHealth(False, error, self.version))

    def _pause(self) -> float:
        return self._limits.retry_seconds * float(2 ** min(self._failures - 1, 5))

    def _child_ended(self, child: HookChild) -> None:
        """Load the folder again after its process ended; after several crashes, with a delay."""
        if child is not self._child:
            return
        self._child = None
        now = self._clock()
        self._crashes = self._crashes + 1 if now - self._loaded_at < STABLE_AFTER else 1
        if self._crashes <= MAX_CRASHES:
            self._settled.clear()
            self._retry_at = 0.0
            self._check_now.set()
            next_step = "it is started again, and groups wait for it"
        else:
            self._retry_at = now + self._limits.retry_seconds
            next_step = (
                f"for the {self._crashes}th time; the next start waits a while, "
                "and groups go to the operator"
            )
        cause = f"{child.end}; {next_step}"
        self._fail(Abstention("hook", cause, file=str(self.folder), crashed=True))


def _hook_answer(answer: Answer) -> HookAnswer:
    return HookAnswer(answer.episode_uuid, dict(answer.message), dict(answer.completion))


def _score(answer: Answer, reward: float, note: Note) -> Score:
    """Return the hook's reward as the whole reward, with the numbers that it added at weight 0."""
    texts = dict(note.texts)
    parts = []
    for name, value in note.values.items():
        reason = texts.pop(f"{name}_reason", "")
        parts.append(Part(name, value, weight=0.0, reason=reason))
    reason = "; ".join(text if key == "reason" else f"{key}: {text}" for key, text in texts.items())
    return Score(answer.index, reward, (Part("hook", reward, reason=reason), *parts))
