"""Scores cases with rewards of a choice: those of the settings, a file, a folder, other weights."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.runtime import SYSTEM, Clock, Runtime
from core.events import Event, JudgeSpent
from core.runtime.home import Home
from core.settings import Settings
from proxy.rewards.model.file import NAME, ModelFault, default_model, load
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.model.spec import RewardModel
from proxy.rewards.rescore.cases import Case, Rescored
from proxy.rewards.select import environment_of, hook_model, missing_file
from proxy.rewards.source import (
    Abstention,
    RewardSource,
    ScoreSheet,
    SourceHealth,
    request_scores,
)

LOAD_WAIT = 60.0
"""Time limit of loading the rewards in seconds."""
CONCURRENCY = 4
"""Number of groups scored at once when a part waits for something."""


class RewardChoice(msgspec.Struct, frozen=True):
    """The rewards to try; empty fields mean those of the settings."""

    file: str = ""
    hooks: str = ""
    weights: Mapping[str, float] = {}
    """Weights by part that replace those of the file."""


@dataclass
class Rescorer:
    """Scores cases with a started source that nothing else uses."""

    source: RewardSource
    limit: float
    """Time limit of one group in seconds."""
    concurrency: int = 1
    """Number of groups scored at once; above 1 for a source that waits."""
    spent: dict[str, JudgeSpent] = field(default_factory=dict)
    """The counts of each judge."""
    clock: Clock = SYSTEM.clock

    @property
    def version(self) -> str:
        """Version of the rewards."""
        return self.source.version

    async def run(
        self, cases: Sequence[Case], on_result: Callable[[], None] = lambda: None
    ) -> list[Rescored]:
        """Score all cases; return their results in the same order.

        A failure of the source is an abstention. The event loop runs between two groups, so that a
        proxy keeps answering its users.

        Args:
            cases: The groups.
            on_result: Called after each group.
        """
        results: dict[int, Rescored] = {}
        remaining = iter(enumerate(cases))

        async def work() -> None:
            for place, case in remaining:
                results[place] = await self._score(case)
                on_result()
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as workers:
            for _ in range(self.concurrency):
                workers.create_task(work())
        return [results[place] for place in range(len(results))]

    async def _score(self, case: Case) -> Rescored:
        started_at = self.clock.monotonic()
        scored = await request_scores(self.source, case.context, self.limit)
        seconds = self.clock.monotonic() - started_at
        if isinstance(scored, ScoreSheet):
            return Rescored(case, scored.scores, seconds=seconds)
        return Rescored(case, abstention=scored, seconds=seconds)


@contextlib.asynccontextmanager
async def rescorer(
    home: Home, settings: Settings, choice: RewardChoice, runtime: Runtime = SYSTEM
) -> AsyncIterator[Rescorer]:
    """Yield a re-scorer with the rewards of `choice`, ready to score; it is closed afterwards.

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
    assert source.serving is not None
    try:
        await source.start()
        await _wait_ready(source)
        concurrency = CONCURRENCY if source.serving.slow else 1
        yield Rescorer(source, settings.reward_limit, concurrency, spent, runtime.clock)
    finally:
        await source.close()


def _build(
    home: Home,
    settings: Settings,
    choice: RewardChoice,
    publish: Callable[[Event], object],
    runtime: Runtime,
) -> ComposedSource:
    """Return the source, not started.

    Raises:
        AjetError: the rewards do not load; lists all faults of a file.
    """
    environment = environment_of(home, settings, publish, runtime)
    try:
        model, _ = model_of(home, settings, choice)
        return ComposedSource(model=model, environment=environment)
    except ModelFault as fault:
        if fault.more:
            raise AjetError(f"the rewards did not load\n{fault}") from None
        where = f"{fault.file}:{fault.line}" if fault.line else fault.file
        raise AjetError(f"the rewards did not load: {fault.cause}", where) from None


def reweighed(model: RewardModel, weights: Mapping[str, float]) -> RewardModel:
    """Return the model with other weights; for a part that has a share, with another share.

    Raises:
        UsageError: there is no such part, or a share is not between 0 and 1.
    """
    parts = {part.name: part for part in model.parts}
    for name, weight in weights.items():
        part = parts.get(name)
        if part is None:
            known = ", ".join(parts)
            raise UsageError(f"there is no part `{name}`", todo=f"There are: {known}")
        if part.share is not None and not 0 <= weight <= 1:
            raise UsageError(f"`{name}` has a share: {weight:g} is not between 0 and 1")
        field = "weight" if part.share is None else "share"
        parts[name] = msgspec.structs.replace(part, **{field: weight})
    if not any(part.counts for part in parts.values()):
        raise UsageError("no part would have a weight", todo="Gates alone make no reward")
    return msgspec.structs.replace(model, parts=tuple(parts.values()))


def model_of(home: Home, settings: Settings, choice: RewardChoice) -> tuple[RewardModel, Path]:
    """Return the model to try, with changed weights, and the folder of its relative paths.

    Raises:
        AjetError: weights are given where a hook folder alone makes the reward, or the file is
            missing or invalid.
    """
    hooks = choice.hooks or ("" if choice.file else settings.rewards.hooks)
    if hooks and choice.weights:
        raise UsageError(
            "a hook folder alone makes the reward: there are no weights",
            todo="Name the folder in rewards.yaml: `mine: {kind: hook, folder: DIR}`",
        )
    if hooks:
        folder = Path(hooks).expanduser().absolute()
        return hook_model(folder), folder
    named = choice.file or settings.rewards.file
    file = Path(named).expanduser().absolute() if named else home.root / NAME
    if named and not file.is_file():
        raise missing_file(file)
    model = load(file) if named or file.exists() else default_model()
    return reweighed(model, choice.weights), file.parent


async def _wait_ready(source: RewardSource) -> None:
    """Wait until a started source scores with its newest code.

    Raises:
        AjetError: it does not load, or not in time; with file and line.
    """
    changed = asyncio.Event()

    def on_health(health: SourceHealth) -> None:
        changed.set()

    remove = source.add_listener(on_health)
    try:
        async with asyncio.timeout(LOAD_WAIT):
            while not source.version:
                error = source.health().error
                if error is not None and (error.traceback or error.line):
                    raise _load_error(error)
                changed.clear()
                await changed.wait()
    except TimeoutError:
        error = source.health().error
        raise _load_error(error or Abstention(source.name, "no version is active")) from None
    finally:
        remove()
    health = source.health()
    if not health.ok and health.error is not None:  # do not try an older version instead
        raise _load_error(health.error)


def _load_error(error: Abstention) -> AjetError:
    where = f"{error.file}:{error.line}" if error.file and error.line else error.file
    trace = f"\n{error.traceback.rstrip()}" if error.traceback else ""
    return AjetError(f"the rewards did not load: {error.cause}{trace}", where)
