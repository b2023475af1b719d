"""Selects the reward source that the settings name."""

from collections.abc import Callable
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.runtime import SYSTEM, Runtime
from core.events import Event
from core.runtime.home import Home
from core.settings import Settings, UpstreamSettings
from proxy.rewards.model.file import NAME
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.model.spec import PartSpec, RewardModel
from proxy.rewards.part import OwnServer, PartEnvironment
from proxy.rewards.source import RewardSource
from proxy.upstream.transport import addresses, key_of


def select_source(
    home: Home,
    settings: Settings,
    publish: Callable[[Event], object] | None = None,
    runtime: Runtime = SYSTEM,
) -> RewardSource:
    """Return the source of rewards that the settings name, not started yet.

    A hook folder in the settings is used without a model. Otherwise the model is in the file named
    in the settings, which must exist, or in the file in the home; without a file it is built in.

    Args:
        home: The console's home folder.
        settings: All settings.
        publish: Publishes events of the parts; None where there is no bus.
        runtime: The clocks and the chance of the process.

    Raises:
        AjetError: the file or folder does not exist, or the settings name both.
    """
    rewards = settings.rewards
    if settings.proxy.watch_only:
        return ComposedSource()
    environment = environment_of(home, settings, publish, runtime)
    if rewards.hooks and rewards.file:
        raise UsageError(
            "a hook folder and a file of rewards are given",
            f"rewards.hooks {rewards.hooks}, rewards.file {rewards.file}",
            "Name the folder in the file, `mine: {kind: hook, folder: DIR}`, and leave --hooks out",
        )
    if rewards.hooks:
        folder = Path(rewards.hooks).expanduser()
        if not folder.is_dir():
            raise AjetError(
                "the hook folder does not exist",
                str(folder),
                "Give the folder that holds the hooks",
            )
        return ComposedSource(model=hook_model(folder), environment=environment, name="hook")
    if rewards.file:
        file = Path(rewards.file).expanduser().absolute()
        if not file.is_file():
            raise missing_file(file)
        return ComposedSource(file, environment, required=True)
    return ComposedSource(home.root / NAME, environment)


def environment_of(
    home: Home,
    settings: Settings,
    publish: Callable[[Event], object] | None = None,
    runtime: Runtime = SYSTEM,
) -> PartEnvironment:
    """Return what the settings provide to parts.

    Raises:
        UpstreamError: the address or key of the upstream is unusable.
    """
    return PartEnvironment(
        home.root,
        settings.reward_limit,
        publish,
        runtime,
        own_server(settings.upstream),
    )


def own_server(upstream: UpstreamSettings) -> OwnServer | None:
    """Return the upstream of observe mode, which `url: own` of a judge names; None without one.

    Raises:
        UpstreamError: its address or key is unusable.
    """
    if not upstream.url:
        return None
    return OwnServer(addresses(upstream.url)[0], key_of(upstream), upstream.model)


def missing_file(file: Path) -> AjetError:
    """Return the error for a named file of rewards that does not exist."""
    todo = "Give the file, or leave --rewards out for the built-in rewards"
    return AjetError("the file of the rewards does not exist", str(file), todo)


def hook_model(folder: Path) -> RewardModel:
    """Return a model whose whole reward is a folder of hooks."""
    settings = {"folder": str(folder.absolute())}
    return RewardModel((PartSpec("hook", "hook", settings=settings),))


def display_name(settings: Settings, source: RewardSource) -> str:
    """Return the name of a source for screens: `builtin`, or a path."""
    return settings.rewards.hooks or source.name
