"""A folder of hooks as a source of rewards: kept running, reloaded when its files change."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.tasks import Tasks, cancel
from proxy.rewards.hooks.child import HookChild, HookLimits, Reply
from proxy.rewards.hooks.errors import FallenError, HookError
from proxy.rewards.hooks.folder import Stamp, digest, stamp, trim_log
from proxy.rewards.hooks.protocol import (
    Note,
    Noted,
    RequestCall,
    ScoreCall,
    Scored,
    Trouble,
    WireAnswer,
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

PATIENCE = 3.0
"""Seconds `start` and a request's note wait for hooks that are still loading."""
RESTART = 10.0
"""Seconds a group at least waits for a process that is coming."""
LIVED = 10.0
"""Seconds a process must have served for its end to count as the first."""
DEATHS = 3
"""Ends in a row after which the next start waits."""
SETTLE = 0.04
"""Seconds between two looks that must agree, so that a half-written save is not loaded."""


class HookSource:
    """Runs `on_compute_relative_reward` and `on_user_submit_new_requests` of one folder.

    The newest version that loads is the one that serves. A save that does not load leaves the old
    version at work and shows in `health`; should the old process die meanwhile, groups abstain,
    for its code is nowhere any more.
    """

    name = "hook"

    def __init__(
        self, folder: Path, limits: HookLimits | None = None, log: Path | None = None
    ) -> None:
        """Args:
        folder: Where the modules are; it may appear later.
        limits: What the hooks may use.
        log: File that gets what the hooks print; our own error stream when None.
        """
        self.folder = folder.absolute().resolve()
        self._limits = limits or HookLimits()
        self._log = log
        self._tasks = Tasks("hooks")
        self._readers = Tasks("hook readers")
        self._children: list[HookChild] = []
        self._child: HookChild | None = None
        self._tried: Stamp | None = None
        self._retry_at = 0.0
        self._loaded_at = 0.0
        self._failures = 0
        self._deaths = 0
        self._loading: asyncio.Task[None] | None = None
        self._kick = asyncio.Event()
        self._settled = asyncio.Event()
        self._suspects = asyncio.Lock()
        loading = Abstention("hook", "the hooks are still loading", file=str(self.folder))
        self._board = HealthNotifier(SourceHealth(False, None, ""))
        self._error = loading

    @property
    def version(self) -> str:
        """Hash of the folder's Python files as they were loaded; empty while nothing serves."""
        return self._child.version if self._child else ""

    @property
    def pid(self) -> int:
        """Process id of the serving child; 0 when there is none."""
        return self._child.pid if self._child else 0

    async def start(self) -> None:
        """Begin to load and to watch; waits a moment for the first load to end."""
        self._tasks.spawn(self._watch(), "watch")
        await self._wait_settled(PATIENCE)

    async def close(self) -> None:
        """End the child and wait until it is reaped; calls under way abstain."""
        self._child = None
        await self._tasks.close()
        async with asyncio.TaskGroup() as closing:
            for child in self._children:
                closing.create_task(child.close())
        await self._readers.close()

    async def reload(self) -> None:
        """Load the folder anew, changed or not, and wait until that has ended."""
        self._tried = None
        self._settled.clear()
        self._kick.set()
        await self._wait_settled(self._limits.load_seconds + PATIENCE)

    def health(self) -> SourceHealth:
        """Whether the newest save serves; see `SourceHealth`."""
        return self._board.now

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change; returns what takes it away."""
        return self._board.add(listener)

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Run `on_user_submit_new_requests`, where there is one."""
        if self._child is None:
            await self._wait_settled(PATIENCE)
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
        """Run `on_compute_relative_reward` on one group; failures are abstentions."""
        started = time.perf_counter()
        version = self.version
        try:
            child = await self._serving()
            version = child.version
            if not ctx.answers:
                raise HookError(Trouble("the group has no answers to score"))
            answers = [_wire(answer) for answer in ctx.answers]
            child, reply = await self._call(child, ScoreCall(0, ctx.query, answers))
            version = child.version
            assert isinstance(reply, Scored)
            rows = zip(ctx.answers, reply.rewards, reply.notes, strict=True)
            scores = tuple(_score(answer, reward, note) for answer, reward, note in rows)
        except HookError as error:
            seconds = time.perf_counter() - started
            return ScoreSheet((), error.abstention, version, seconds)
        return ScoreSheet(scores, None, version, time.perf_counter() - started)

    async def _call(
        self, child: HookChild, call: ScoreCall | RequestCall
    ) -> tuple[HookChild, Reply]:
        """Run a call; once more on the next process when it fell with one, not by its doing.

        Where it is not known which call ended the process, they go one after the other: then the
        one that does it again falls alone.
        """
        try:
            return child, await child.call(call)
        except FallenError as fallen:
            turn = contextlib.nullcontext() if fallen.victim else self._suspects
        async with turn:
            child = await self._serving()
            try:
                return child, await child.call(call)
            except FallenError as fallen:
                cause = f"{fallen.trouble.cause}; asked once more, the group fell again"
                raise HookError(msgspec.structs.replace(fallen.trouble, cause=cause)) from fallen

    @property
    def spare(self) -> float:
        """Seconds beyond its limit that a group may need which fell with a process."""
        return self._limits.call_seconds + self._limits.grace_seconds + RESTART

    async def _serving(self) -> HookChild:
        if self._child is None:
            await self._wait_settled(max(self._limits.call_seconds, RESTART))
        if self._child is None:
            error = self._error
            raise HookError(Trouble(error.cause, error.traceback, error.file, error.line))
        return self._child

    async def _wait_settled(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()

    async def _watch(self) -> None:
        """Load at every change of the files, when asked to, and now and then while it fails."""
        while True:
            self._kick.clear()
            seen = await asyncio.to_thread(self._look)
            if seen != self._tried or (self._child is None and time.monotonic() >= self._retry_at):
                await self._begin(seen)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.poll_seconds):
                    await self._kick.wait()

    def _look(self) -> Stamp:
        if self._log is not None:
            trim_log(self._log, self._limits.log_bytes)
        return stamp(self.folder)

    async def _begin(self, seen: Stamp) -> None:
        if self._loading is not None and not self._loading.done():
            if seen == self._tried:
                return
            await cancel(self._loading)
        for _ in range(20):  # an editor may be in the middle of its save
            await asyncio.sleep(SETTLE)
            again = await asyncio.to_thread(stamp, self.folder)
            if again == seen:
                break
            seen = again
        if seen != self._tried:
            self._failures = self._deaths = 0
        self._tried = seen
        self._loading = self._tasks.spawn(self._load(seen), "load")

    async def _load(self, files: Stamp) -> None:
        version = await asyncio.to_thread(digest, self.folder, files)
        child = HookChild(
            self.folder, version, self._limits, self._readers, self._log, self._child_ended
        )
        self._children = [other for other in self._children if not other.over]
        self._children.append(child)
        try:
            await child.start()
        except HookError as error:
            self._failures += 1
            self._retry_at = time.monotonic() + self._pause()
            self._fail(error.abstention)
        else:
            self._loaded_at = time.monotonic()
            old, self._child = self._child, child
            self._board.post(SourceHealth(True, None, version))
            if old is not None:
                self._tasks.spawn(old.retire(), f"retire {old.version}")
        self._settled.set()

    def _fail(self, error: Abstention) -> None:
        self._error = error
        self._board.post(SourceHealth(False, error, self.version))

    def _pause(self) -> float:
        return self._limits.retry_seconds * float(2 ** min(self._failures - 1, 5))

    def _child_ended(self, child: HookChild) -> None:
        """The serving process died: load the folder again, at once unless it dies and dies."""
        if child is not self._child:
            return
        self._child = None
        now = time.monotonic()
        self._deaths = self._deaths + 1 if now - self._loaded_at < LIVED else 1
        if self._deaths <= DEATHS:
            self._settled.clear()
            self._retry_at = 0.0
            self._kick.set()
            next_ = "it is started again, and groups wait for it"
        else:
            self._retry_at = now + self._limits.retry_seconds
            next_ = (
                f"for the {self._deaths}th time; the next start waits a while, "
                "and groups go to the operator"
            )
        fell = Abstention("hook", f"{child.end}; {next_}", file=str(self.folder), fell=True)
        self._fail(fell)


def _wire(answer: Answer) -> WireAnswer:
    return WireAnswer(answer.episode_uuid, dict(answer.message), dict(answer.completion))


def _score(answer: Answer, reward: float, note: Note) -> Score:
    """The hook's reward is the whole reward; the numbers it noted are shown at weight 0."""
    texts = dict(note.texts)
    named = []
    for name, value in note.values.items():
        reason = texts.pop(f"{name}_reason", "")
        named.append(Part(name, value, weight=0.0, reason=reason))
    reason = "; ".join(text if key == "reason" else f"{key}: {text}" for key, text in texts.items())
    return Score(answer.index, reward, (Part("hook", reward, reason=reason), *named))
