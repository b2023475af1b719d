"""`reward-test --pdb`: the parts of one group in this process, under the debugger."""

import asyncio
import bdb
import importlib
import inspect
import logging
import pdb
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from ajet_swarm.common.errors import AjetError
from core.runtime.home import Home
from core.settings import Settings
from proxy.rewards.hooks.check import checked_rewards
from proxy.rewards.hooks.host import REWARD, HookFunctions
from proxy.rewards.hooks.tutorial_api import EpisodeResult, install_shim
from proxy.rewards.model.file import make
from proxy.rewards.model.spec import Column, PartSpec, Weigher
from proxy.rewards.part import (
    NeedsEnvironment,
    PartEnvironment,
    PartInput,
    PartValue,
    PartValues,
    SlowPart,
)
from proxy.rewards.source import GroupContext
from proxy.rewards.text import content_stems, read
from proxy.rewards.trial.replay import Case
from proxy.rewards.trial.source import TrialChoice, hooks_of, model_of

log = logging.getLogger(__name__)


class Debugger(pdb.Pdb):
    """Stops at the first line of a function, not in what leads there."""

    def __init__(self) -> None:
        super().__init__(nosigint=True, readrc=False)

    def call(self, stop_in: Callable[..., Any] | None, work: Callable[[], Any]) -> Any:
        """Do `work`; stop when it comes to `stop_in`.

        Raises:
            BdbQuit: the debugger was left before `work` ended.
        """
        code = getattr(inspect.unwrap(stop_in), "__code__", None) if stop_in else None
        if code is None:
            return work()
        lines = [line for _, _, line in code.co_lines() if line and line > code.co_firstlineno]
        at = min(lines, default=code.co_firstlineno)
        self.rcLines.extend([f"tbreak {code.co_filename}:{at}", "continue"])
        found: list[Any] = []
        self.runcall(lambda: found.append(work()))  # it passes over BdbQuit
        if not found:
            raise bdb.BdbQuit
        return found[0]


def debug(home: Home, settings: Settings, choice: TrialChoice, case: Case) -> int:
    """Run what makes the reward of one group; 0 when there is one, 1 when not.

    Hooks are imported here. A failure ends in the frame where it happened.

    Raises:
        AjetError: the rewards do not load.
    """
    debugger = Debugger()
    folder = hooks_of(settings, choice)
    try:
        if folder is not None:
            values = _hook(debugger, folder, case.context)
            told = " ".join(f"{one:g}" for one in values)
        else:
            told = _model(debugger, home, settings, choice, case.context)
    except bdb.BdbQuit:
        return 1
    except AjetError:
        raise
    except Exception as error:  # the operator's code: it is looked at where it failed
        log.exception("the rewards failed: %s", error)
        debugger.reset()
        debugger.interaction(None, cast(Any, error.__traceback__))
        return 1
    sys.stdout.write(f"rewards {told}\n")
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
    found = debugger.call(function, lambda: asyncio.run(_rewards(hooks, context)))
    return cast(list[float], found)


async def _rewards(hooks: HookFunctions, context: GroupContext) -> list[float]:
    assert hooks.reward is not None
    results = [
        EpisodeResult(one.episode_uuid, dict(one.completion), context.query)
        for one in context.answers
    ]
    answers = [dict(one.message) for one in context.answers]
    value = hooks.reward(results, answers, context.query)
    if inspect.isawaitable(value):
        value = await value
    return checked_rewards(value, len(answers))


def _model(
    debugger: Debugger, home: Home, settings: Settings, choice: TrialChoice, context: GroupContext
) -> str:
    """All parts one after the other; it stops in those that are not built in, else in each."""
    model, folder = model_of(home, settings, choice)
    readings = [read(one) for one in context.answers]
    looked = PartInput(context, readings, content_stems(context.query))
    foreign = {one.name for one in model.active if _is_foreign(one)}
    columns: list[Column] = []
    for spec in model.active:
        column: Column
        if spec.kind == "hook":
            values = _hook(debugger, folder / str(spec.settings["folder"]), context)
            column = [PartValue(one) for one in values]
        else:
            part = make(spec, model, folder)
            if isinstance(part, NeedsEnvironment):
                part.place(PartEnvironment(home.root, settings.reward_limit))
            stop = part.score if not foreign or spec.name in foreign else None
            found = debugger.call(stop, partial(_said, part, looked))
            column = cast(Column, found)
        columns.append(column)
        sys.stdout.write(f"{spec.name}: {_values(column)}\n")
    indices = [one.index for one in context.answers]
    scores = Weigher(model.active).scores(indices, columns)
    return " ".join(f"{one.reward:g}" for one in scores)


def _is_foreign(spec: PartSpec) -> bool:
    from proxy.rewards.part import KINDS

    return spec.kind == "hook" or not KINDS[spec.kind].make.__module__.startswith("proxy.")


def _said(part: Any, looked: PartInput) -> PartValues:
    said = part.score(looked)
    if not inspect.iscoroutine(said):
        return cast(PartValues, said)
    said.close()
    return asyncio.run(_waited(part, looked))


async def _waited(part: SlowPart, looked: PartInput) -> PartValues:
    try:
        await part.start()
        return await part.score(looked)
    finally:
        await part.close()


def _values(column: Sequence[PartValue | None] | None) -> str:
    if column is None:
        return "does not apply"
    return " ".join("-" if one is None else f"{one.value:g}" for one in column)
