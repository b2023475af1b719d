"""The rewards of a trial: those of the settings, a file, a hook folder, or other weights."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.runtime import SYSTEM, Runtime
from core.events import Event, JudgeSpent
from core.runtime.home import Home
from core.settings import Settings
from proxy.rewards.hooks.source import HookSource
from proxy.rewards.model.file import NAME, ModelFault, default_model, load
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.model.spec import RewardModel
from proxy.rewards.part import KINDS, PartEnvironment
from proxy.rewards.select import select_source
from proxy.rewards.source import RewardSource
from proxy.rewards.trial.replay import wait_ready

LOAD_WAIT = 60.0
"""Time limit of loading the rewards in seconds."""
CONCURRENCY = 4
"""Number of groups scored at once when a part waits for something."""


class TrialChoice(msgspec.Struct, frozen=True):
    """The rewards to try; empty fields mean those of the settings."""

    file: str = ""
    hooks: str = ""
    weights: Mapping[str, float] = {}
    """Weights by part that replace those of the file."""


class TrialSource(msgspec.Struct):
    """A started source, and the counts of its judges."""

    source: RewardSource
    concurrency: int
    spent: dict[str, JudgeSpent]
    version: str


@contextlib.asynccontextmanager
async def trial_source(
    home: Home, settings: Settings, choice: TrialChoice, runtime: Runtime = SYSTEM
) -> AsyncIterator[TrialSource]:
    """Yield a separate source for `choice`, ready to score; it is closed afterwards.

    Args:
        home: The console's home folder.
        settings: All settings.
        choice: The rewards.
        runtime: The clocks and the chance of the process.

    Raises:
        AjetError: the rewards do not load; with file and line.
    """
    spent: dict[str, JudgeSpent] = {}

    def on_event(event: Event) -> None:
        if isinstance(event, JudgeSpent):
            spent[event.judge] = event

    source = await asyncio.to_thread(_build, home, settings, choice, on_event, runtime)
    try:
        await source.start()
        await wait_ready(source, LOAD_WAIT)
        yield TrialSource(source, CONCURRENCY if _waits(source) else 1, spent, source.version)
    finally:
        await source.close()


def _build(
    home: Home,
    settings: Settings,
    choice: TrialChoice,
    publish: Callable[[Event], object],
    runtime: Runtime,
) -> RewardSource:
    """Return the source, not started; the error for an invalid file lists all its faults."""
    if choice.weights or hooks_of(settings, choice) is None:
        try:
            model, _ = model_of(home, settings, choice)
        except ModelFault as fault:
            if not Path(fault.file).is_file():
                return select_source(home, _settings(settings, choice), publish, runtime)
            if fault.more:
                raise AjetError(f"the rewards did not load\n{fault}") from None
            where = f"{fault.file}:{fault.line}" if fault.line else fault.file
            raise AjetError(f"the rewards did not load: {fault.cause}", where) from None
        if choice.weights:
            limit = settings.reward_limit
            memory_mb = settings.rewards.memory_mb
            environment = PartEnvironment(home.root, limit, memory_mb, publish, runtime)
            return ComposedSource(model=model, environment=environment)
    return select_source(home, _settings(settings, choice), publish, runtime)


def reweighed(model: RewardModel, weights: Mapping[str, float]) -> RewardModel:
    """Return the model with other weights; for a part that has a share, with another share.

    Raises:
        UsageError: there is no such part, or a share is not between 0 and 1.
    """
    if not weights:
        return model
    for name, weight in weights.items():
        spec = model.named(name)
        if spec is None:
            known = ", ".join(part.name for part in model.parts)
            raise UsageError(f"there is no part `{name}`", todo=f"There are: {known}")
        if spec.share is not None and not 0 <= weight <= 1:
            raise UsageError(f"`{name}` has a share: {weight:g} is not between 0 and 1")
    parts = tuple(
        part
        if part.name not in weights
        else msgspec.structs.replace(part, share=weights[part.name])
        if part.share is not None
        else msgspec.structs.replace(part, weight=weights[part.name])
        for part in model.parts
    )
    if not any(part.counts for part in parts):
        raise UsageError("no part would have a weight", todo="Gates alone make no reward")
    return msgspec.structs.replace(model, parts=parts)


def hooks_of(settings: Settings, choice: TrialChoice) -> Path | None:
    """Return the hook folder that replaces the model; None if a model makes the reward."""
    named = choice.hooks or ("" if choice.file else settings.rewards.hooks)
    return Path(named).expanduser().absolute() if named else None


def model_of(home: Home, settings: Settings, choice: TrialChoice) -> tuple[RewardModel, Path]:
    """Return the model to try, with changed weights, and the folder of its relative paths.

    Raises:
        UsageError: a hook folder alone makes the reward, or the file is invalid.
    """
    if hooks_of(settings, choice) is not None:
        raise UsageError(
            "a hook folder alone makes the reward: there are no weights",
            todo="Name the folder in rewards.yaml: `mine: {kind: hook, folder: DIR}`",
        )
    named = choice.file or settings.rewards.file
    file = Path(named).expanduser().absolute() if named else home.root / NAME
    model = load(file) if named or file.exists() else default_model()
    return reweighed(model, choice.weights), file.parent


def _settings(settings: Settings, choice: TrialChoice) -> Settings:
    rewards = settings.rewards
    if choice.file:
        rewards = msgspec.structs.replace(rewards, file=choice.file, hooks="")
    elif choice.hooks:
        rewards = msgspec.structs.replace(rewards, hooks=choice.hooks, file="")
    proxy = msgspec.structs.replace(settings.proxy, watch_only=False)
    return msgspec.structs.replace(settings, rewards=rewards, proxy=proxy)


def _waits(source: RewardSource) -> bool:
    if isinstance(source, HookSource):
        return True
    model = source.model if isinstance(source, ComposedSource) else None
    return model is not None and any(KINDS[part.kind].slow for part in model.active)
