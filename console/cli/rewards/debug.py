"""`rewards test --pdb`: score one group in this process, under the debugger."""

import asyncio
import bdb
import importlib
import inspect
import logging
import pdb
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from ajet_swarm.common.errors import AjetError
from core.runtime.home import Home
from core.settings import Settings
from proxy.rewards.hooks.functions import REWARD, HookFunctions, checked_rewards
from proxy.rewards.hooks.tutorials import EpisodeResult, install_shim
from proxy.rewards.model.file import make
from proxy.rewards.model.spec import PartSpec, RewardModel, Weigher
from proxy.rewards.part import (
    NeedsEnvironment,
    PartEnvironment,
    PartInput,
    PartValue,
    PartValues,
)
from proxy.rewards.rescore.cases import Case
from proxy.rewards.rescore.rescorer import RewardChoice, model_of
from proxy.rewards.source import GroupContext
from proxy.rewards.text import content_stems, read

log = logging.getLogger(__name__)


class Debugger(pdb.Pdb):
    """Debugger that stops at the first line of a function instead of at its caller."""

    def __init__(self) -> None:
        super().__init__(nosigint=True, readrc=False)

    def call(self, stop_in: Callable[..., Any] | None, work: Callable[[], Any]) -> Any:
        """Run `work` and stop when it enters `stop_in`.

        Raises:
            BdbQuit: the operator quit the debugger before `work` ended.
        """
        code = getattr(inspect.unwrap(stop_in), "__code__", None) if stop_in else None
        if code is None:
            return work()
        lines = [line for _, _, line in code.co_lines() if line and line > code.co_firstlineno]
        at = min(lines, default=code.co_firstlineno)
        self.rcLines.extend([f"tbreak {code.co_filename}:{at}", "continue"])
        results: list[Any] = []
        self.runcall(lambda: results.append(work()))  # it swallows BdbQuit
        if not results:
            raise bdb.BdbQuit
        return results[0]


def debug(home: Home, settings: Settings, choice: RewardChoice, case: Case) -> int:
    """Compute the rewards of one group under the debugger; return the exit code, 1 on failure.

    Hooks are imported into this process. After a failure, the debugger opens in the failing frame.

    Raises:
        AjetError: the rewards do not load.
    """
    debugger = Debugger()
    model, folder = model_of(home, settings, choice)
    try:
        rewards = _rewards(debugger, model, folder, case.context, home, settings)
    except bdb.BdbQuit:
        return 1
    except AjetError:
        raise
    except Exception as error:  # the operator's code: open the debugger where it failed
        log.exception("the rewards failed: %s", error)
        debugger.reset()
        debugger.interaction(None, cast(Any, error.__traceback__))
        return 1
    sys.stdout.write(f"rewards {rewards}\n")
    return 0


def _hook(debugger: Debugger, folder: Path, context: GroupContext) -> list[float]:
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    install_shim()
    hooks = HookFunctions(folder)
    trouble = hooks.load()
    if trouble is not None:
        where = f"{trouble.file}:{trouble.line}" if trouble.line else trouble.file
        raise AjetError(f"the hooks do not load: {trouble.cause}", where, trouble.traceback)
    function = getattr(importlib.import_module(REWARD), REWARD)
    values = debugger.call(function, lambda: asyncio.run(_hook_rewards(hooks, context)))
    return cast(list[float], values)


async def _hook_rewards(hooks: HookFunctions, context: GroupContext) -> list[float]:
    assert hooks.reward is not None
    results = [
        EpisodeResult(answer.episode_uuid, dict(answer.completion), context.query)
        for answer in context.answers
    ]
    answers = [dict(answer.message) for answer in context.answers]
    value = hooks.reward(results, answers, context.query)
    if inspect.isawaitable(value):
        value = await value
    return checked_rewards(value, len(answers))


def _rewards(
    debugger: Debugger,
    model: RewardModel,
    folder: Path,
    context: GroupContext,
    home: Home,
    settings: Settings,
) -> str:
    """Score all parts in turn; stop in the custom parts, or in every part when none is custom."""
    readings = [read(answer) for answer in context.answers]
    part_input = PartInput(context, readings, content_stems(context.query))
    custom = {part.name for part in model.active if _is_custom(part)}
    columns: list[PartValues] = []
    for spec in model.active:
        column: PartValues
        if spec.kind == "hook":
            values = _hook(debugger, folder / str(spec.settings["folder"]), context)
            column = [PartValue(value) for value in values]
        else:
            part = make(spec, model, folder)
            if isinstance(part, NeedsEnvironment):
                part.place(PartEnvironment(home.root, settings.reward_limit))
            function = getattr(part, "function", part.score)
            stop = function if not custom or spec.name in custom else None
            column = cast(PartValues, debugger.call(stop, partial(_score, part, part_input)))
        columns.append(column)
        shown = "does not apply"
        if column is not None:
            shown = " ".join("-" if value is None else f"{value.value:g}" for value in column)
        sys.stdout.write(f"{spec.name}: {shown}\n")
    indices = [answer.index for answer in context.answers]
    scores = Weigher(model.active).scores(indices, columns)
    return " ".join(f"{score.reward:g}" for score in scores)


def _is_custom(spec: PartSpec) -> bool:
    from proxy.rewards.part import KINDS

    return spec.kind == "hook" or not KINDS[spec.kind].make.__module__.startswith("proxy.")


def _score(part: Any, part_input: PartInput) -> PartValues:
    """Score with a part; one that waits runs in an event loop of its own."""
    values = part.score(part_input)
    if not inspect.iscoroutine(values):
        return cast(PartValues, values)

    async def scored() -> PartValues:
        try:
            await part.start()
            return cast(PartValues, await values)
        finally:
            await part.close()

    return asyncio.run(scored())
