"""A folder of hooks as the whole reward, with limits that a test chooses."""

from pathlib import Path

from proxy.rewards.hooks.part import Hook
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import HookLimits, PartEnvironment
from proxy.rewards.select import hook_model


class HookRewards(ComposedSource):
    """The source that `--hooks FOLDER` selects."""

    def __init__(
        self, folder: Path, limits: HookLimits | None = None, home: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        limits = limits or HookLimits()
        environment = PartEnvironment(home, limits.call_seconds, limits)
        super().__init__(model=hook_model(folder), environment=environment, name="hook")

    @property
    def pid(self) -> int:
        """Process id of the hooks; 0 when there is none."""
        assert self.serving is not None
        ((_, part),) = self.serving.slow
        assert isinstance(part, Hook)
        return part.pid
