"""The part of kind `hook`: one version of a folder, run in a process of its own."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.tasks import Tasks, keep_running
from ajet_swarm.runtime import SYSTEM
from core.events import Part
from proxy.rewards.files import digest, trim_log
from proxy.rewards.hooks.child import CrashError, HookChild, HookError, HookReply
from proxy.rewards.hooks.protocol import (
    HookAnswer,
    Note,
    Noted,
    RequestCall,
    ScoreCall,
    Scored,
)
from proxy.rewards.part import (
    HookLimits,
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
TRIM_EVERY = 1.0
"""Seconds between two checks of the size of the log."""
MAX_CRASHES = 3
"""Crashes in a row after which the next start is delayed."""


class Hook(Reporting):
    """Runs `on_compute_relative_reward` and `on_user_submit_new_requests` of one folder.

    When a file of the folder changes, the model makes another part, and keeps this one until that
    one has loaded. If the process of this one ends then, groups abstain, because its code no
    longer exists.

    Args:
        folder: Folder of the hook modules.
        seconds: Time limit of one call; None for that of the environment.
        memory_mb: Memory limit of the process in MiB.
    """

    def __init__(self, folder: Path, seconds: float | None = None, memory_mb: int = 2048) -> None:
        self.folder = folder.absolute().resolve()
        self.files = (self.folder,)
        self.limits = HookLimits()
        self._log: Path | None = None
        """File for the output of the hooks; None for the error stream of this process."""
        self._seconds, self._memory_mb = seconds, memory_mb
        self._clock = SYSTEM.clock.monotonic
        self._tasks = Tasks("hooks")
        self._child: HookChild | None = None
        """The process that serves; None when there is none."""
        self._newest: HookChild | None = None
        """The newest process, which may load, serve or end."""
        self._child_gone = asyncio.Event()
        self._settled = asyncio.Event()
        """Set while no load is in progress."""
        self._retry_lock = asyncio.Lock()
        """Held by a call that may have ended a process, while it is retried."""
        self._error = Abstention("hook", "the hooks are still loading", file=str(self.folder))
        super().__init__(SourceHealth(False, None, ""))

    def place(self, environment: PartEnvironment) -> None:
        """Take the limits that are not set, and the folder of the log, from the environment."""
        self.limits = msgspec.structs.replace(
            environment.hooks,
            call_seconds=self._seconds or environment.seconds,
            memory_bytes=self._memory_mb << 20,
        )
        self._clock = environment.runtime.clock.monotonic
        if environment.home is not None:
            self._log = environment.home / "logs" / "hooks.log"

    @property
    def pid(self) -> int:
        """Process id of the serving child; 0 when there is none."""
        return self._child.pid if self._child else 0

    async def start(self) -> None:
        """Begin to load; wait briefly for the load to end."""
        self._tasks.spawn(keep_running(self._run, "the process of the hooks"), "run")
        if self._log is not None:
            self._tasks.spawn(self._trim_log(self._log), "log")
        await self._wait_settled(LOAD_WAIT)

    async def close(self) -> None:
        """End the child process and reap it; calls in progress abstain."""
        self._error = Abstention("hook", "the hooks are closed", file=str(self.folder))
        self._child = None
        await self._tasks.close()
        if self._newest is not None:  # not in a task that is cancelled: it takes its time
            await self._newest.close()
        self._settled.set()

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

    async def _trim_log(self, log: Path) -> None:
        while True:
            await asyncio.to_thread(trim_log, log, self.limits.log_bytes)
            await asyncio.sleep(TRIM_EVERY)

    async def _run(self) -> None:
        """Keep a process running: load the files, and again after a failure or a crash."""
        version, failures, crashes = "", 0, 0
        while (current := await asyncio.to_thread(digest, self.folder)) == (version or current):
            version = current
            child = HookChild(self.folder, version, self.limits, self._log, self._child_ended)
            self._newest = child
            try:
                await child.start()
            except HookError as error:
                self._fail(error.by("hook"))
                self._settled.set()
                await asyncio.sleep(self.limits.retry_seconds * 2.0 ** min(failures, 5))
                failures += 1
                continue
            loaded_at, failures, self._child = self._clock(), 0, child
            self._child_gone.clear()
            self._report(SourceHealth(True, None, version))
            self._settled.set()
            await self._child_gone.wait()
            await child.close()
            crashes = crashes + 1 if self._clock() - loaded_at < STABLE_AFTER else 1
            if crashes <= MAX_CRASHES:
                self._crashed(f"{child.end}; it is started again, and groups wait for it")
                continue
            self._crashed(
                f"{child.end}; for the {crashes}th time; the next start waits a while, "
                "and groups go to the operator"
            )
            self._settled.set()
            await asyncio.sleep(self.limits.retry_seconds)
        self._crashed("the hooks' process has ended, and the files have changed since")
        self._settled.set()

    def _child_ended(self, child: HookChild) -> None:
        """Let calls wait for the next process."""
        if child is self._child:
            self._child = None
            self._settled.clear()
            self._child_gone.set()

    def _crashed(self, cause: str) -> None:
        self._fail(Abstention("hook", cause, file=str(self.folder), crashed=True))

    def _fail(self, error: Abstention) -> None:
        self._error = error
        self._report(SourceHealth(False, error, ""))


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
