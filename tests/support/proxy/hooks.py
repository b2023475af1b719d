"""A folder of hooks as the whole reward, with limits that a test chooses."""

from pathlib import Path

from proxy.rewards.hooks.child import HookLimits
from proxy.rewards.hooks.part import Hook
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import PartEnvironment
from proxy.rewards.select import hook_model


class HookRewards(ComposedSource):
    """The source that `--hooks FOLDER` selects."""

    def __init__(
        self, folder: Path, limits: HookLimits | None = None, log: Path | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        limits = limits or HookLimits()
        environment = PartEnvironment(seconds=limits.call_seconds)
        super().__init__(model=hook_model(folder), environment=environment, name="hook")
        assert self.serving is not None
        ((_, part),) = self.serving.slow
        assert isinstance(part, Hook)
        part.limits, part.log = limits, log
        self.part = part

    @property
    def pid(self) -> int:
        """Process id of the hooks; 0 when there is none."""
        return self.part.pid
