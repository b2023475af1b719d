"""A folder of hooks as the whole reward, with limits that a test chooses."""

from pathlib import Path

from proxy.rewards.hooks.part import Hook
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.model.spec import PartSpec, RewardModel
from proxy.rewards.part import HookLimits, PartEnvironment


class HookRewards(ComposedSource):
    """The source that `--hooks FOLDER` selects."""

    def __init__(
        self, folder: Path, limits: HookLimits | None = None, home: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        limits = limits or HookLimits()
        settings = {"folder": str(folder.absolute()), "memory_mb": limits.memory_bytes >> 20}
        model = RewardModel((PartSpec("hook", "hook", settings=settings),))
        environment = PartEnvironment(home, limits.call_seconds, hooks=limits)
        super().__init__(model=model, environment=environment, name="hook")

    @property
    def pid(self) -> int:
        """Process id of the hooks; 0 when there is none."""
        assert self.serving is not None
        ((_, part),) = self.serving.slow
        assert isinstance(part, Hook)
        return part.pid
