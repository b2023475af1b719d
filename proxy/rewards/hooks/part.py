"""The part of kind `hook`: a folder run in a process, loaded again when a file changes."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.tasks import Tasks, cancel, keep_running
from ajet_swarm.runtime import SYSTEM
from proxy.rewards.files import Stamp, digest, folder_stamp, settled, trim_log
from proxy.rewards.hooks.child import CrashError, HookChild, HookError, HookLimits, HookReply
from proxy.rewards.hooks.protocol import (
    HookAnswer,
    Note,
    Noted,
    RequestCall,
    ScoreCall,
    Scored,
)
from proxy.rewards.part import (
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartKind,
    PartValue,
    Setting,
    SettingError,
)
from proxy.rewards.source import (
    Abstention,
    Part,
    Reporting,
    RequestReport,
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


class Hook(Reporting):
    """Runs `on_compute_relative_reward` and `on_user_submit_new_requests` of one folder.

    The newest version that loads is the one that scores. After a save that does not load, the
    previous version keeps scoring and `health` reports the fault. If the old process ends then,
    groups abstain, because its code no longer exists.

    Args:
        folder: Folder of the hook modules.
        seconds: Time limit of one call; None for that of the environment.
        memory_mb: Memory limit of the process in MiB.

    Attributes:
        limits: Time and memory limits of the hooks.
        log: File for the output of the hooks; None for the error stream of this process.
    """

    def __init__(self, folder: Path, seconds: float | None = None, memory_mb: int = 2048) -> None:
        self.folder = folder.absolute().resolve()
        self.limits = HookLimits()
        self.log: Path | None = None
        self._seconds, self._memory_mb = seconds, memory_mb
        self._clock = SYSTEM.clock.monotonic
        self._tasks = Tasks("hooks")
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
        self._error = loading
        super().__init__(SourceHealth(False, None, ""))

    def place(self, environment: PartEnvironment) -> None:
        """Take the limits that are not set, and the folder of the log, from the environment."""
        seconds = self._seconds or environment.seconds
        self.limits = HookLimits(seconds, memory_bytes=self._memory_mb << 20)
        self._clock = environment.runtime.clock.monotonic
        if environment.home is not None:
            self.log = environment.home / "logs" / "hooks.log"

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
            reply = await self._call(child, call)
        except PartAbstained as why:
            return RequestReport(metadata, None, why.by("hook"))
        assert isinstance(reply, Noted)
        return RequestReport(reply.metadata, reply.repeat)

    async def score(self, group: PartInput) -> list[PartValue]:
        """Return the value that `on_compute_relative_reward` gives each answer.

        Raises:
            PartAbstained: the hook failed; with its traceback, file and line.
        """
        context = group.context
        answers = [
            HookAnswer(answer.episode_uuid, dict(answer.message), dict(answer.completion))
            for answer in context.answers
        ]
        child = await self._serving()
        reply = await self._call(child, ScoreCall(0, context.query, answers))
        assert isinstance(reply, Scored)
        return [_value(*row) for row in zip(reply.rewards, reply.notes, strict=True)]

    async def _call(self, child: HookChild, call: ScoreCall | RequestCall) -> HookReply:
        """Run a call; if its process crashes through no known fault of the call, run it once more.

        When it is unknown which call ended the process, the retries wait for each other, so that a
        call that crashes the process again does so alone.
        """
        try:
            return await child.call(call)
        except CrashError as crash:
            alone = contextlib.nullcontext() if crash.victim else self._retry_lock
        async with alone:
            child = await self._serving()
            try:
                return await child.call(call)
            except CrashError as crash:
                cause = f"{crash.fault.cause}; retried once, with the same result"
                raise HookError(msgspec.structs.replace(crash.fault, cause=cause)) from crash

    @property
    def extra_seconds(self) -> float:
        """Seconds beyond the time limit that a group may need whose process crashed."""
        return self.limits.call_seconds + self.limits.grace_seconds + RESTART_WAIT

    async def _serving(self) -> HookChild:
        if self._child is None:
            await self._wait_settled(max(self.limits.call_seconds, RESTART_WAIT))
        if self._child is None:
            error = self._error
            raise PartAbstained(error.cause, error.traceback, error.file, error.line)
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
                async with asyncio.timeout(self.limits.poll_seconds):
                    await self._check_now.wait()

    def _stamp(self) -> Stamp:
        if self.log is not None:
            trim_log(self.log, self.limits.log_bytes)
        return folder_stamp(self.folder)

    async def _begin_load(self, current: Stamp) -> None:
        if self._loading is not None and not self._loading.done():
            if current == self._loaded_stamp:
                return
            await cancel(self._loading)
        current = await settled(partial(folder_stamp, self.folder), current)
        if current != self._loaded_stamp:
            self._failures = self._crashes = 0
        self._loaded_stamp = current
        self._loading = self._tasks.spawn(self._load(current), "load")

    async def _load(self, files: Stamp) -> None:
        version = await asyncio.to_thread(digest, self.folder, files)
        child = HookChild(self.folder, version, self.limits, self.log, self._child_ended)
        self._children = [other for other in self._children if not other.ended]
        self._children.append(child)
        try:
            await child.start()
        except HookError as error:
            self._failures += 1
            self._retry_at = self._clock() + self._pause()
            self._fail(error.by("hook"))
        else:
            self._loaded_at = self._clock()
            old, self._child = self._child, child
            self._report(SourceHealth(True, None, version))
            if old is not None:
                self._tasks.spawn(old.retire(), f"retire {old.version}")
        self._settled.set()

    def _fail(self, error: Abstention) -> None:
        self._error = error
        version = self._child.version if self._child else ""
        self._report(SourceHealth(False, error, version))

    def _pause(self) -> float:
        return self.limits.retry_seconds * float(2 ** min(self._failures - 1, 5))

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
            self._retry_at = now + self.limits.retry_seconds
            next_step = (
                f"for the {self._crashes}th time; the next start waits a while, "
                "and groups go to the operator"
            )
        cause = f"{child.end}; {next_step}"
        self._fail(Abstention("hook", cause, file=str(self.folder), crashed=True))


def _value(reward: float, note: Note) -> PartValue:
    """Return the hook's reward, with the numbers that it added at weight 0."""
    texts = dict(note.texts)
    notes = []
    for name, value in note.values.items():
        reason = texts.pop(f"{name}_reason", "")
        notes.append(Part(name, value, weight=0.0, reason=reason))
    reason = "; ".join(text if key == "reason" else f"{key}: {text}" for key, text in texts.items())
    return PartValue(reward, reason, tuple(notes))


def make(name: str, settings: Mapping[str, Any], where: Path) -> Hook:
    """Return the part.

    Raises:
        SettingError: the folder does not exist.
    """
    folder = settings["folder"]
    if not folder.is_dir():
        raise SettingError("folder", f"there is no folder {folder}", "Give the one with the hooks")
    return Hook(folder, settings["seconds"], settings["memory_mb"])


HOOK = PartKind(
    make,
    "Your own Python function, in a separate process",
    {
        "folder": Setting("file", ..., "folder with `on_compute_relative_reward.py`"),
        "seconds": Setting(
            "number", None, "seconds per group; default: the limit in the settings", 0.01
        ),
        "memory_mb": Setting("int", 2048, "MiB for its process", 64),
    },
    slow=True,
    relative="a hook may compare the answers of a group",
)
