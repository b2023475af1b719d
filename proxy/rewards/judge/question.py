"""A question to a judge: answered from the cache or by calls within a budget, with one repair."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ajet_swarm.api.outcomes import INVALID_REQUEST
from ajet_swarm.runtime import Chance
from proxy.rewards.judge.cache import Cache
from proxy.rewards.judge.endpoint import JudgeClient, JudgeReply
from proxy.rewards.judge.limits import Breaker, SpendCounter
from proxy.rewards.judge.prompt import BadReply, Messages, repairing
from proxy.rewards.judge.settings import JudgeFault, Options
from proxy.rewards.part import PartAbstained

BACKOFF = 0.5
"""Seconds before the first retry; the wait doubles with each further one."""

T = TypeVar("T")


class GroupBudget:
    """The remaining time and retries of one group; `last` is its most recent fault."""

    def __init__(self, options: Options) -> None:
        self.until = asyncio.get_running_loop().time() + options.group_seconds
        """Time on the loop's clock at which the group abstains."""
        self.retries = options.retries
        self.last = ""


class Question(msgspec.Struct, Generic[T], frozen=True):
    """A prompt, and the reader of its reply."""

    prompt: Callable[[str], Messages]
    """Returns the prompt with the random code of its tags."""
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
        spend: The judge's counts.
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
        spend: SpendCounter,
        on_success: Callable[[], None],
        chance: Chance,
    ) -> None:
        self._options = options
        self._client = client
        self._model = model
        self._breaker = breaker
        self._cache = cache
        self._spend = spend
        self._on_success = on_success
        self._chance = chance
        self._slots = asyncio.Semaphore(options.concurrency)

    async def ask(self, question: Question[T], budget: GroupBudget) -> T:
        """Return the judge's result for a question.

        Raises:
            PartAbstained: the judge gave no usable reply.
        """
        key = self._key(question)
        if self._cache is not None and (data := await self._cache.get(key)) is not None:
            try:
                cached = msgspec.json.decode(data, type=question.result)
            except msgspec.MsgspecError:
                pass  # stored by another version of the program
            else:
                self._spend.add(hits=1)
                return cached
        async with self._breaker.admission() as is_test:
            result = await self._answer(question, budget, is_test)
            self._breaker.record_success()
            self._on_success()
        if self._cache is not None:
            await self._cache.put(key, msgspec.json.encode(result))
        return result

    def _key(self, question: Question[T]) -> bytes:
        """Return the hash of all that determines the reply; the code of tags is no part of it."""
        options = self._options
        tuned = [options.temperature, options.max_tokens, options.low, options.high, options.extra]
        what = [options.mode, [self._client.url, self._model], tuned, question.prompt("")]
        return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).digest()

    async def _answer(self, question: Question[T], budget: GroupBudget, is_test: bool) -> T:
        """Ask the question; ask for a repaired reply once if the reply is unusable."""
        messages = question.prompt(self._chance.token(8))
        faults: list[str] = []
        while True:
            reply = await self._call(question, messages, budget, is_test)
            try:
                return question.read(reply.text)
            except BadReply as bad:
                cut = f"it was cut off at the limit of tokens ({bad})"
                faults.append(cut if reply.cut and not faults else str(bad))
            budget.last = f"its reply could not be used: {faults[0]}"
            if len(faults) == 2:
                break
            self._spend.add(repairs=1)
            messages = repairing(messages, reply.text, faults[0])
        cause = f"the judge's reply could not be used: {'; asked again: '.join(faults)}"
        self._breaker.record_failure(cause, is_test)
        raise PartAbstained(cause)

    async def _call(
        self, question: Question[T], messages: Messages, budget: GroupBudget, is_test: bool
    ) -> JudgeReply:
        """Return a reply; retry faults that may pass while the budget lasts."""
        tries = 0
        while True:
            if reason := self._spend.over(self._options.spend_limit):
                raise PartAbstained(reason)
            if not is_test:
                self._breaker.check()
            try:
                async with self._slots:
                    reply = await self._client.ask(
                        self._model, messages, question.schema, question.name
                    )
            except JudgeFault as fault:
                if fault.status not in INVALID_REQUEST:  # those statuses concern this request only
                    self._breaker.record_failure(fault.text, is_test)
                budget.last = fault.text
                wait = self._wait(fault, tries, budget)
            else:
                self._pay(reply)
                return reply
            tries += 1
            budget.retries -= 1
            self._spend.add(retries=1)
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
        wait = max(BACKOFF * 2.0**tries * self._chance.uniform(0.75, 1.25), fault.wait or 0.0)
        if wait >= budget.until - asyncio.get_running_loop().time():
            raise PartAbstained(f"{cause}; there is no time to ask again in {wait:.1f} s")
        return wait

    def _pay(self, reply: JudgeReply) -> None:
        """Count an answered call, with its cost by the prices that are known."""
        prompt, completion = reply.tokens or (0, 0)
        price_in, price_out = self._options.price_in or 0.0, self._options.price_out or 0.0
        self._spend.add(
            prompt_tokens=prompt,
            completion_tokens=completion,
            untold=int(reply.tokens is None),
            cost=(prompt * price_in + completion * price_out) / 1e6,
            seconds=reply.seconds,
        )
