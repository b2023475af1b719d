"""A question to a judge: answered from the cache or by calls within a budget, with one repair."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

import msgspec

from ajet_swarm.api.outcomes import INVALID_REQUEST
from ajet_swarm.runtime import Chance
from proxy.rewards.judge.breaker import Breaker, BreakerOpen
from proxy.rewards.judge.budget import SpendCounter
from proxy.rewards.judge.cache import Cache
from proxy.rewards.judge.http import JudgeClient, JudgeFault, JudgeReply
from proxy.rewards.judge.prompt import Messages, repairing
from proxy.rewards.judge.reply import BadReply
from proxy.rewards.judge.settings import Options
from proxy.rewards.part import PartAbstained

BACKOFF = 0.5
"""Seconds before the first retry; the wait doubles with each further one."""

T = TypeVar("T")


class GroupBudget:
    """The remaining time and retries of one group; `last` is its most recent fault."""

    def __init__(self, options: Options) -> None:
        self._clock = asyncio.get_running_loop().time
        self.until = self._clock() + options.group_seconds
        self.retries = options.retries
        self.last = ""

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit of the group."""
        return self.until - self._clock()


class Question(msgspec.Struct, Generic[T], frozen=True):
    """A prompt, and the reader of its reply."""

    key: bytes
    """Hash of everything that determines the reply."""
    messages: Messages
    schema: dict[str, Any]
    name: str
    """Name of the reply's schema."""
    read: Callable[[str], T]
    """Turns the reply into a result; raises `BadReply`."""
    result: type[T]
    """Type that `read` returns, to decode it from the cache."""


class QuestionRunner:
    """Asks the questions of one judge.

    Args:
        options: Settings of the judge.
        client: Connection to its endpoint.
        model: Name of the model.
        breaker: Shared by all questions.
        cache: Stored verdicts; None for no cache.
        tally: Returns the judge's counts.
        on_success: Called when the endpoint has given a verdict.
        chance: Source of pauses, and of the codes in prompts.
    """

    def __init__(
        self,
        options: Options,
        client: JudgeClient,
        model: str,
        breaker: Breaker,
        cache: Cache | None,
        tally: Callable[[], SpendCounter],
        on_success: Callable[[], None],
        chance: Chance,
    ) -> None:
        self._options = options
        self._client = client
        self._model = model
        self._breaker = breaker
        self._cache = cache
        self._tally = tally
        self._on_success = on_success
        self.chance = chance
        self._slots = asyncio.Semaphore(options.concurrency)

    async def ask(self, question: Question[T], budget: GroupBudget) -> T:
        """Return the judge's result for a question.

        Raises:
            PartAbstained: the judge gave no usable reply.
        """
        cached = await self._cached(question)
        if cached is not None:
            self._tally().add(hits=1)
            return cached
        async with self._admitted() as probe:
            result = await self._answer(question, budget, probe)
            self._breaker.record_success()
            self._on_success()
        if self._cache is not None:
            await self._cache.put(question.key, msgspec.json.encode(result))
        return result

    async def _cached(self, question: Question[T]) -> T | None:
        data = None if self._cache is None else await self._cache.get(question.key)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=question.result)
        except msgspec.MsgspecError:
            return None  # stored by another version of the program

    @contextlib.asynccontextmanager
    async def _admitted(self) -> AsyncIterator[bool]:
        try:
            probe = await self._breaker.admit()
        except BreakerOpen as error:
            raise PartAbstained(str(error)) from None
        try:
            yield probe
        finally:
            if probe:
                self._breaker.release()

    async def _answer(self, question: Question[T], budget: GroupBudget, probe: bool) -> T:
        """Ask the question; ask for a repaired reply once if the reply is unusable."""
        reply = await self._call(question, question.messages, budget, probe)
        try:
            return question.read(reply.text)
        except BadReply as bad:
            fault = _fault(bad, reply)
        budget.last = f"its reply could not be used: {fault}"
        self._tally().add(repairs=1)
        repair = repairing(question.messages, reply.text, fault)
        reply = await self._call(question, repair, budget, probe)
        try:
            return question.read(reply.text)
        except BadReply as bad:
            cause = f"the judge's reply could not be used: {fault}; asked again: {bad}"
            self._breaker.record_failure(cause, probe)
            raise PartAbstained(cause) from None

    async def _call(
        self, question: Question[T], messages: Messages, budget: GroupBudget, probe: bool
    ) -> JudgeReply:
        """Return a reply; retry faults that may pass while the budget lasts."""
        tries = 0
        while True:
            if reason := overspent(self._options, self._tally()):
                raise PartAbstained(reason)
            try:
                if not probe:
                    self._breaker.check()
                return await self._send(question, messages)
            except BreakerOpen as error:
                raise PartAbstained(str(error)) from None
            except JudgeFault as fault:
                if fault.status not in INVALID_REQUEST:  # those statuses concern this request only
                    self._breaker.record_failure(fault.text, probe)
                budget.last = fault.text
                wait = self._wait(fault, tries, budget)
            tries += 1
            budget.retries -= 1
            self._tally().add(retries=1)
            await asyncio.sleep(wait)

    def _wait(self, fault: JudgeFault, tries: int, budget: GroupBudget) -> float:
        """Return the seconds to wait before the call is repeated.

        Raises:
            PartAbstained: the call is not repeated.
        """
        cause = f"the judge failed: {fault.text}"
        if not fault.again:
            raise PartAbstained(cause)
        if budget.retries < 1:
            used = f", and the {self._options.retries} retries of the group are used up"
            raise PartAbstained(cause + (used if self._options.retries else ""))
        wait = BACKOFF * 2.0**tries * self.chance.uniform(0.75, 1.25)
        if fault.wait is not None:
            wait = max(wait, fault.wait)
        if wait >= budget.seconds_left:
            raise PartAbstained(f"{cause}; there is no time to ask again in {wait:.1f} s")
        return wait

    async def _send(self, question: Question[T], messages: Messages) -> JudgeReply:
        async with self._slots:
            reply = await self._client.ask(self._model, messages, question.schema, question.name)
        cost = 0.0
        if reply.tokens is not None:
            prompt, completion = reply.tokens
            price_in, price_out = self._options.price_in or 0.0, self._options.price_out or 0.0
            cost = (prompt * price_in + completion * price_out) / 1e6
        self._tally().pay(reply.tokens, cost, reply.seconds)
        return reply


def overspent(options: Options, tally: SpendCounter) -> str:
    """Return why no further call may be made; empty while the spend limit allows one."""
    limit, cost = options.spend_limit, tally.now.cost
    if limit is None or cost < limit:
        return ""
    return f"the judge has spent {cost:.2f} of the {limit:.2f} it may spend in a run"


def _fault(bad: BadReply, reply: JudgeReply) -> str:
    return f"it was cut off at the limit of tokens ({bad})" if reply.cut else str(bad)
