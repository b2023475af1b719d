"""One question to a judge: from the cache, or by calls within a group's budget, with one repair."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

import msgspec

from ajet_swarm.api.outcomes import THE_REQUESTS
from proxy.rewards.judge.breaker import Breaker, BreakerOpen
from proxy.rewards.judge.budget import SpendCounter
from proxy.rewards.judge.cache import Cache
from proxy.rewards.judge.http import JudgeFault, Reply, Wire
from proxy.rewards.judge.prompt import Messages, repairing
from proxy.rewards.judge.reply import BadReply
from proxy.rewards.judge.settings import Options
from proxy.rewards.part import PartAbstained

BACKOFF = 0.5
"""Seconds before the first repetition; each further one waits twice as long."""

T = TypeVar("T")


class Budget:
    """What one group may still use up; `last` is the newest thing that went wrong."""

    def __init__(self, options: Options) -> None:
        self.until = time.monotonic() + options.group_seconds
        self.retries = options.retries
        self.last = ""

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.monotonic()


class Question(msgspec.Struct, Generic[T], frozen=True):
    """What is asked, and how its reply is read."""

    key: bytes
    """Of everything that determines the reply."""
    messages: Messages
    schema: dict[str, Any]
    name: str
    """What the form of the reply is called."""
    read: Callable[[str], T]
    """Raises `BadReply`."""
    kept: type[T]
    """Type of what `read` gives, for the cache."""


class Asker:
    """Asks the questions of one judge.

    Args:
        options: Of the judge.
        wire: Its endpoint.
        model: Name of the model.
        breaker: Shared by all questions.
        cache: None for none.
        tally: Counts it all.
        worked: Called when the endpoint has given a verdict.
    """

    def __init__(
        self,
        options: Options,
        wire: Wire,
        model: str,
        breaker: Breaker,
        cache: Cache | None,
        tally: Callable[[], SpendCounter],
        worked: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._wire = wire
        self._model = model
        self._breaker = breaker
        self._cache = cache
        self._tally = tally
        self._worked = worked
        self._slots = asyncio.Semaphore(options.concurrency)

    async def ask(self, question: Question[T], budget: Budget) -> T:
        """What the judge says.

        Raises:
            PartAbstained: it says nothing of use.
        """
        found = await self._known(question)
        if found is not None:
            self._tally().add(hits=1)
            return found
        async with self._turn() as probe:
            said = await self._answer(question, budget, probe)
            self._breaker.worked()
            self._worked()
        if self._cache is not None:
            await self._cache.put(question.key, msgspec.json.encode(said))
        return said

    async def _known(self, question: Question[T]) -> T | None:
        data = None if self._cache is None else await self._cache.get(question.key)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=question.kept)
        except msgspec.MsgspecError:
            return None  # of another version of the program

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        try:
            probe = await self._breaker.admit()
        except BreakerOpen as error:
            raise PartAbstained(str(error)) from None
        try:
            yield probe
        finally:
            if probe:
                self._breaker.release()

    async def _answer(self, question: Question[T], budget: Budget, probe: bool) -> T:
        """Ask, and once more when the reply cannot be used."""
        reply = await self._call(question, question.messages, budget, probe)
        try:
            return question.read(reply.text)
        except BadReply as bad:
            fault = _fault(bad, reply)
        budget.last = f"its reply could not be used: {fault}"
        self._tally().add(repairs=1)
        again = repairing(question.messages, reply.text, fault)
        reply = await self._call(question, again, budget, probe)
        try:
            return question.read(reply.text)
        except BadReply as bad:
            cause = f"the judge's reply could not be used: {fault}; asked again: {bad}"
            self._breaker.failed(cause, probe)
            raise PartAbstained(cause) from None

    async def _call(
        self, question: Question[T], messages: Messages, budget: Budget, probe: bool
    ) -> Reply:
        """One reply; what may work later is tried again while the budget lasts."""
        tries = 0
        while True:
            if said := overspent(self._options, self._tally()):
                raise PartAbstained(said)
            try:
                if not probe:
                    self._breaker.check()
                return await self._send(question, messages)
            except BreakerOpen as error:
                raise PartAbstained(str(error)) from None
            except JudgeFault as fault:
                if fault.status not in THE_REQUESTS:  # else another group may fare better
                    self._breaker.failed(fault.text, probe)
                budget.last = fault.text
                wait = self._wait(fault, tries, budget)
            tries += 1
            budget.retries -= 1
            self._tally().add(retries=1)
            await asyncio.sleep(wait)

    def _wait(self, fault: JudgeFault, tries: int, budget: Budget) -> float:
        """Seconds to wait before the call is repeated.

        Raises:
            PartAbstained: it is not repeated.
        """
        said = f"the judge failed: {fault.text}"
        if not fault.again:
            raise PartAbstained(said)
        if budget.retries < 1:
            used = f", and the {self._options.retries} retries of the group are used up"
            raise PartAbstained(said + (used if self._options.retries else ""))
        wait = BACKOFF * 2.0**tries * random.uniform(0.75, 1.25)
        if fault.wait is not None:
            wait = max(wait, fault.wait)
        if wait >= budget.left:
            raise PartAbstained(f"{said}; there is no time to ask again in {wait:.1f} s")
        return wait

    async def _send(self, question: Question[T], messages: Messages) -> Reply:
        async with self._slots:
            reply = await self._wire.ask(self._model, messages, question.schema, question.name)
        cost = 0.0
        if reply.tokens is not None:
            prompt, completion = reply.tokens
            price_in, price_out = self._options.price_in or 0.0, self._options.price_out or 0.0
            cost = (prompt * price_in + completion * price_out) / 1e6
        self._tally().pay(reply.tokens, cost, reply.seconds)
        return reply


def overspent(options: Options, tally: SpendCounter) -> str:
    """Why no more may be spent; empty while it may."""
    limit, cost = options.spend_limit, tally.now.cost
    if limit is None or cost < limit:
        return ""
    return f"the judge has spent {cost:.2f} of the {limit:.2f} it may spend in a run"


def _fault(bad: BadReply, reply: Reply) -> str:
    return f"it was cut off at the limit of tokens ({bad})" if reply.cut else str(bad)
