"""One listener of several groups: a request with several prompts, each of which is a group."""

import asyncio
from collections.abc import Sequence

from ajet_swarm.api.outcomes import ChatAnswer, answer_of
from proxy.admission.registry import Groups
from proxy.dialects.request import ChatRequest
from proxy.dialects.validation import bad_value
from proxy.groups.waiter import AnswerWaiter, FinalAnswer

_MISSING = answer_of(
    200, b"", {"choices": [{"message": {"content": None}, "finish_reason": "abort"}]}
)
"""Stands where a group has fewer answers than it was asked for, so that the others keep their
places: a choice that ends without a word, as a stream tells it."""


class MultiPromptWaiter:
    """The waiters of all prompts as one; made to be read as a `AnswerWaiter` is.

    Args:
        waiters: One for each prompt, in their order.
        each: Choices asked for with each.
    """

    has_streamed = False
    """Nothing is told before all of it is there."""

    def __init__(self, waiters: Sequence[AnswerWaiter], each: int) -> None:
        self.waiters = tuple(waiters)
        self.keepalives = 0
        self._each = each
        self._replies: list[FinalAnswer] = []
        self._left = False

    @property
    def age(self) -> float:
        """Seconds since they came."""
        return self.waiters[0].age

    @property
    def left(self) -> bool:
        """The user is gone."""
        return self._left

    def expire_now(self) -> None:
        """An end is wanted now."""
        for waiter in self.waiters:
            waiter.expire_now()

    async def next(self, seconds: float) -> FinalAnswer | None:
        """All answers as one reply; the first refusal instead; None as of a `AnswerWaiter`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        for waiter in self.waiters[len(self._replies) :]:
            news = await waiter.next(max(0.0, until - loop.time()))
            if not isinstance(news, FinalAnswer):
                return None
            if not news.answers:
                return news
            self._replies.append(news)
        answers = (answer for reply in self._replies for answer in self._filled(reply))
        return FinalAnswer(None, tuple(answers), "several")

    def _filled(self, reply: FinalAnswer) -> list[ChatAnswer]:
        answers = list(reply.answers[: self._each])
        return answers + [_MISSING] * (self._each - len(answers))

    def count_keepalive(self) -> None:
        """The user was sent that there is no news."""
        self.keepalives += 1
        self.waiters[len(self._replies)].count_keepalive()

    def leave(self) -> None:
        """The user is gone, or was told off."""
        self._left = True
        for waiter in self.waiters:
            waiter.leave()

    def confirm_delivery(self) -> None:
        """The last byte of the answer was written and the user was still there."""
        for waiter in self.waiters:
            waiter.confirm_delivery()


async def submit_parts(
    groups: Groups, request: ChatRequest, stream_budget: float, most: int
) -> MultiPromptWaiter:
    """Submit all parts of a request, or none: those before one that is refused are given up.

    Args:
        groups: Where they go.
        request: With `parts`.
        stream_budget: Seconds the answer may take where it is streamed.
        most: Prompts that one request may have: more would never fit in the queue.

    Raises:
        ApiError: of the part that is refused; nothing is left of the others.
    """
    if len(request.parts) > most:
        text = f"At most {most} prompts for each request are supported, got {len(request.parts)}."
        raise bad_value(text, "prompt")
    waiters: list[AnswerWaiter] = []
    try:
        for part in request.parts:
            waiter = await groups.submit(part)
            if request.stream:
                waiter.deadline = waiter.started_at + stream_budget
            waiters.append(waiter)
    except BaseException:
        for waiter in waiters:
            waiter.leave()
        raise
    return MultiPromptWaiter(waiters, request.n)
