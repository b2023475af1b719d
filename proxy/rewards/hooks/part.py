"""A folder of hooks as one part of a model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.hooks.child import HookLimits
from proxy.rewards.hooks.source import HookSource
from proxy.rewards.part import (
    PartAbstained,
    PartEnvironment,
    PartInput,
    PartKind,
    PartValue,
    Setting,
    SettingError,
)
from proxy.rewards.source import Listener, RequestReport, SourceHealth


class Hook:
    """The value that `on_compute_relative_reward` returns, with the numbers that it notes."""

    def __init__(self, folder: Path, seconds: float | None, memory_mb: int | None) -> None:
        self._folder, self._seconds, self._memory_mb = folder, seconds, memory_mb
        self.source = HookSource(folder, self._limits(PartEnvironment()))

    def _limits(self, environment: PartEnvironment) -> HookLimits:
        memory = environment.memory_mb if self._memory_mb is None else self._memory_mb
        return HookLimits(self._seconds or environment.seconds, memory_bytes=memory << 20)

    def place(self, environment: PartEnvironment) -> None:
        """Take the limits that are not set, and the folder of the log, from the environment."""
        log = None if environment.home is None else environment.home / "logs" / "hooks.log"
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        clock = environment.runtime.clock.monotonic
        self.source = HookSource(self._folder, self._limits(environment), log, clock)

    async def start(self) -> None:
        await self.source.start()

    async def close(self) -> None:
        await self.source.close()

    def health(self) -> SourceHealth:
        """Return the health of the folder's source."""
        return self.source.health()

    @property
    def extra_seconds(self) -> float:
        return self.source.extra_seconds

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        return self.source.add_listener(listener)

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Run `on_user_submit_new_requests`, if there is one."""
        return await self.source.request(request_id, task_id, query, metadata)

    async def score(self, group: PartInput) -> list[PartValue]:
        """Return one value for each answer.

        Raises:
            PartAbstained: the hook failed; with its traceback, file and line.
        """
        sheet = await self.source.score(group.context)
        if (why := sheet.abstention) is not None:
            raise PartAbstained(why.cause, why.traceback, why.file, why.line, why.late)
        return [
            PartValue(one.reward, one.parts[0].reason if one.parts else "", one.parts[1:])
            for one in sheet.scores
        ]


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
        "memory_mb": Setting(
            "int", None, "MiB for its process; default: the limit in the settings", 64
        ),
    },
    slow=True,
    relative="a hook may compare the answers of a group",
)
