"""What-if: other rewards on the groups of the journal, in the background, changing nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.tasks import cancel
from core.events import WhatIfChanged
from core.runtime.home import Home
from proxy.context import ProxyContext
from proxy.rewards.model.live import RewardCommands
from proxy.rewards.trial.cases import cases_of, newest, pages
from proxy.rewards.trial.replay import Tried, summary_of, trial
from proxy.rewards.trial.source import Choice, bench, model_of

log = logging.getLogger(__name__)

LAST = 100
MOST = 500
TELL = 0.5
"""Seconds between two tellings of how far it is."""


class WhatIfCommands:
    """One proxy's what-ifs; one at a time, a new one ends the one before.

    Args:
        context: The proxy's shared parts.
        orders: Writes what is applied.
    """

    def __init__(self, context: ProxyContext, orders: RewardCommands) -> None:
        self._context = context
        self._orders = orders
        self._home = Home(context.journal.path.parent)
        self._task: asyncio.Task[None] | None = None
        self._now: WhatIfChanged | None = None
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "rewards.whatif": self.start,
            "rewards.whatif_stop": self.stop,
            "rewards.apply": self.apply,
        }

    async def start(self, args: dict[str, Any]) -> str:
        """Begin to score the newest groups anew.

        Raises:
            AjetError: the weights or the file name nothing that can be tried.
        """
        weights = weights_of(args.get("weights") or ())
        choice = Choice(args.get("file") or "", args.get("hooks") or "", weights)
        if choice.file and choice.hooks:
            raise UsageError("a file and a hook folder are given", todo="Give one of them")
        last = args.get("last") or LAST
        if not 1 <= last <= MOST:
            raise UsageError(f"{last} groups cannot be tried", todo=f"From 1 to {MOST}")
        if weights:
            await asyncio.to_thread(model_of, self._home, self._context.settings, choice)
        await self._end()
        self._now = WhatIfChanged(
            what=_what(choice),
            weights=tuple(weights.items()) if not (choice.file or choice.hooks) else (),
            total=last,
            began=self._context.clock(),
        )
        self._tell()
        self._task = self._context.tasks.spawn(self._run(choice, last), "what-if")
        return f"the newest {last} groups are re-scored; nothing is sent"

    async def stop(self, args: dict[str, Any]) -> str:
        """End the one that runs."""
        if not await self._end():
            raise AjetError("no what-if runs")
        return "the what-if is ended; nothing was changed"

    async def apply(self, args: dict[str, Any]) -> str:
        """Write weights, those of the last what-if unless others are given, to the file.

        Raises:
            AjetError: there is none, it is not done, or it tried no weights.
        """
        if given := weights_of(args.get("weights") or ()):
            return await self._orders.weights(given)
        known = self._context.bus.state.what_if
        if known is None or known.phase != "done":
            raise AjetError(
                "there is no what-if to apply", todo="Try some weights first: rewards.whatif"
            )
        if not known.weights:
            raise AjetError(
                f"the what-if tried {known.what}, not weights",
                todo="Put that file in place of the rewards file: it is loaded when it is saved",
            )
        told = await self._orders.weights(dict(known.weights))
        self._context.bus.publish(
            WhatIfChanged(
                what=known.what,
                phase="applied",
                weights=known.weights,
                done=known.done,
                total=known.total,
                began=known.began,
                summary=known.summary,
            )
        )
        return f"applied {known.what}: {told}"

    # --- at work --------------------------------------------------------------------------------

    async def _end(self) -> bool:
        """Cancel the one that runs; whether one did."""
        task = self._task
        if task is None or task.done():
            return False
        await cancel(task)
        self._tell(phase="cancelled")
        return True

    async def _run(self, choice: Choice, last: int) -> None:
        try:
            await self._score(choice, last)
        except AjetError as error:
            self._tell(phase="failed", cause=str(error))
        except Exception as error:  # a defect of a part must not look like a result
            log.exception("the what-if failed")
            self._tell(phase="failed", cause=f"{type(error).__name__}: {error}")

    async def _score(self, choice: Choice, last: int) -> None:
        journal, loop = self._context.journal, asyncio.get_running_loop()
        await journal.committed(self._context.bus.state.seq)
        async with bench(self._home, self._context.settings, choice) as one:
            ids = await asyncio.to_thread(newest, journal, last)
            if not ids:
                raise AjetError("there are no groups to re-score", todo="Ask something first")
            results: list[Tried] = []
            self._tell(total=len(ids))
            done, told = 0, loop.time()

            def counted() -> None:
                nonlocal done, told
                done += 1
                if loop.time() - told >= TELL:
                    told = loop.time()
                    self._tell(done=done)

            limit = self._context.settings.reward_limit
            for page in pages(ids):
                cases = await asyncio.to_thread(cases_of, journal, page)
                results += await trial(one.source, cases, limit, at_once=one.at_once, tell=counted)
            found = summary_of(results, one.version)
        self._tell(phase="done", done=len(results), total=len(results), summary=found)

    def _tell(self, **changed: Any) -> None:
        assert self._now is not None
        self._now = msgspec.structs.replace(self._now, seq=0, at=0.0, **changed)
        self._context.bus.publish(self._now)


def weights_of(given: Any) -> dict[str, float]:
    """`PART=NUMBER` by part.

    Raises:
        UsageError: it is something else.
    """
    found: dict[str, float] = {}
    for one in given:
        name, sign, text = one.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not sign or not name.strip() or not abs(value) <= 1e6:
            raise UsageError(f"`{one:.40}` is no weight", todo="A weight is PART=NUMBER")
        found[name.strip()] = value
    return found


def _what(choice: Choice) -> str:
    named = [choice.file or choice.hooks] if choice.file or choice.hooks else []
    return ", ".join([*named, *(f"{part} {weight:g}" for part, weight in choice.weights.items())])
