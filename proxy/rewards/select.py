"""Which rewards the settings ask for."""

from collections.abc import Callable
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from core.events import Event
from core.runtime.home import Home
from core.settings import Settings
from proxy.rewards.hooks.child import HookLimits
from proxy.rewards.hooks.source import HookSource
from proxy.rewards.judge.budget import JUDGE_BUDGETS, own_server
from proxy.rewards.model.file import NAME
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import PartEnvironment
from proxy.rewards.source import RewardSource


def select_source(
    home: Home, settings: Settings, publish: Callable[[Event], object] | None = None
) -> RewardSource:
    """The source of rewards, not started yet.

    A folder of hooks given alone makes the reward alone. Else the file of the settings, which must
    be there, else that of the home; without any it is the built-in model.

    Raises:
        AjetError: what the settings name is not there, or they name two things.
    """
    wanted = settings.rewards
    if settings.proxy.watch_only:
        return ComposedSource()
    JUDGE_BUDGETS.own = own_server(settings.upstream)
    around = PartEnvironment(home.root, settings.reward_limit, wanted.memory_mb, publish)
    if wanted.hooks and wanted.file:
        raise UsageError(
            "a hook folder and a file of rewards are given",
            f"rewards.hooks {wanted.hooks}, rewards.file {wanted.file}",
            "Name the folder in the file, `mine: {kind: hook, folder: DIR}`, and leave --hooks out",
        )
    if wanted.hooks:
        folder = Path(wanted.hooks).expanduser()
        if not folder.is_dir():
            raise AjetError(
                "the hook folder does not exist",
                str(folder),
                "Give the folder that holds the hooks",
            )
        limits = HookLimits(settings.reward_limit, memory_bytes=wanted.memory_mb << 20)
        return HookSource(folder, limits, home.logs / "hooks.log")
    if wanted.file:
        file = Path(wanted.file).expanduser().absolute()
        if not file.is_file():
            raise AjetError(
                "the file of the rewards does not exist",
                str(file),
                "Give the file, or leave --rewards out for the built-in rewards",
            )
        return ComposedSource(file, around, required=True)
    return ComposedSource(home.root / NAME, around)


def display_name(settings: Settings, source: RewardSource) -> str:
    """What it is called on screen: `builtin`, or a path."""
    return settings.rewards.hooks or source.name
