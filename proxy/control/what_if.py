"""What-if: scores journalled groups with other rewards, in the background, changing nothing."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import cancel
from core.commands.rewards import weights_of
from core.commands.spec import Handler
from core.commands.table import WHAT_IF_GROUPS
from core.events import WhatIfChanged
from core.runtime.home import Home
from proxy.context import ProxyContext
from proxy.rewards.model.source import RewardCommands
from proxy.rewards.rescore.cases import newest_cases, summary_of
from proxy.rewards.rescore.rescorer import RewardChoice, model_of, rescorer

log = logging.getLogger(__name__)

PUBLISH_EVERY = 0.5
"""Seconds between two reports of progress."""


class WhatIfCommands:
    """The what-if commands of one proxy. One runs at a time; a new one cancels the previous.

    Args:
        context: The proxy's shared parts.
        reward_commands: Writes the weights that are applied.
    """

    def __init__(self, context: ProxyContext, reward_commands: RewardCommands) -> None:
        self._context = context
        self._reward_commands = reward_commands
        self._home = Home(context.journal.path.parent)
        self._task: asyncio.Task[None] | None = None
        self._current: WhatIfChanged | None = None
        self.table: Mapping[str, Handler] = {
            "rewards.whatif": self.start,
            "rewards.whatif_stop": self.stop,
            "rewards.apply": self.apply,
        }

    async def start(
        self,
        weights: Sequence[str] = (),
        file: str = "",
        hooks: str = "",
        last: int = WHAT_IF_GROUPS,
    ) -> str:
        """Begin to score the newest groups again.

        Raises:
            AjetError: the weights or the file cannot be tried.
        """
        choice = RewardChoice(file, hooks, weights_of(weights))
        if weights:
            await asyncio.to_thread(model_of, self._home, self._context.settings, choice)
        await self._cancel()
        self._current = WhatIfChanged(
            what=_describe(choice),
            weights=tuple(choice.weights.items()) if not (choice.file or choice.hooks) else (),
            total=last,
            began=self._context.clock(),
        )
        self._publish()
        self._task = self._context.tasks.spawn(self._run(choice, last), "what-if")
        return f"the newest {last} groups are re-scored; nothing is sent"

    async def stop(self) -> str:
        """Cancel the running what-if."""
        if not await self._cancel():
            return "no what-if runs; nothing was changed"
        return "the what-if is ended; nothing was changed"

    async def apply(self, weights: Sequence[str] = ()) -> str:
        """Write weights to the file: those given, else those of the last what-if.

        Raises:
            AjetError: the file cannot be changed from here.
        """
        if weights:
            return await self._reward_commands.weights(weights_of(weights))
        last_trial = self._context.bus.state.what_if
        assert last_trial is not None  # its plan has found it
        summary = await self._reward_commands.weights(dict(last_trial.weights))
        applied = msgspec.structs.replace(last_trial, seq=0, at=0.0, phase="applied")
        self._context.bus.publish(applied)
        return f"applied {last_trial.what}: {summary}"

    # --- the running what-if --------------------------------------------------------------------

    async def _cancel(self) -> bool:
        """Cancel the running what-if; return whether one was running."""
        task = self._task
        if task is None or task.done():
            return False
        await cancel(task)
        self._publish(phase="cancelled")
        return True

    async def _run(self, choice: RewardChoice, last: int) -> None:
        try:
            await self._score(choice, last)
        except AjetError as error:
            self._publish(phase="failed", cause=str(error))
        except Exception as error:  # a fault of a part must not be taken for a result
            log.exception("the what-if failed")
            self._publish(phase="failed", cause=f"{type(error).__name__}: {error}")

    async def _score(self, choice: RewardChoice, last: int) -> None:
        context, loop = self._context, asyncio.get_running_loop()
        await context.journal.committed(context.bus.state.seq)
        async with rescorer(self._home, context.settings, choice, context.runtime) as trial:
            cases = await asyncio.to_thread(newest_cases, context.journal, last)
            if not cases:
                raise AjetError("there are no groups to re-score", todo="Send a request first")
            self._publish(total=len(cases))
            done, published_at = 0, loop.time()

            def count_result() -> None:
                nonlocal done, published_at
                done += 1
                if loop.time() - published_at >= PUBLISH_EVERY:
                    published_at = loop.time()
                    self._publish(done=done)

            results = await trial.run(cases, count_result)
            summary = summary_of(results, trial.version)
        self._publish(phase="done", done=len(results), total=len(results), summary=summary)

    def _publish(self, **changed: Any) -> None:
        assert self._current is not None
        self._current = msgspec.structs.replace(self._current, seq=0, at=0.0, **changed)
        self._context.bus.publish(self._current)


def _describe(choice: RewardChoice) -> str:
    names = [choice.file or choice.hooks] if choice.file or choice.hooks else []
    return ", ".join([*names, *(f"{part} {weight:g}" for part, weight in choice.weights.items())])
