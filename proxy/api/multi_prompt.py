"""One waiter for several groups: a request with several prompts, each of which is a group."""

import asyncio
from collections.abc import Sequence

from ajet_swarm.api.chat import ChatAnswer, answer_of
from core.dialects.validation import bad_value
from proxy.admission.registry import Groups
from proxy.admission.sessions import RequestCount
from proxy.dialects.request import ChatRequest
from proxy.groups.answer import AnswerWaiter, FinalAnswer

_MISSING = answer_of(
    200, b"", {"choices": [{"message": {"content": None}, "finish_reason": "abort"}]}
)
"""Replaces a missing answer of a group, so that the others keep their positions."""


class MultiPromptWaiter:
    """The waiters of all prompts as one, with the interface of an `AnswerWaiter`.

    Args:
        waiters: One for each prompt, in their order.
        each: Number of choices for each.
    """

    has_streamed = False
    """Always false: nothing is sent before all answers are complete."""

    def __init__(self, waiters: Sequence[AnswerWaiter], each: int) -> None:
        self.waiters = tuple(waiters)
        self.keepalives = 0
        self._each = each
        self._replies: list[FinalAnswer] = []
        self.left = False
        """Whether the user has disconnected."""

    @property
    def age(self) -> float:
        """Seconds since the request came."""
        return self.waiters[0].age

    @property
    def weights(self) -> str | None:
        """Versions of the weights of all prompts; None if soon known, empty if not."""
        each = dict.fromkeys(waiter.weights for waiter in self.waiters)
        return "" if "" in each else None if None in each else ", ".join(filter(None, each))

    def expire_now(self) -> None:
        """End every wait because the proxy stops."""
        for waiter in self.waiters:
            waiter.expire_now()

    async def next(self, seconds: float) -> FinalAnswer | None:
        """Return all answers as one, or the first error; None as `AnswerWaiter.next` does."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        for waiter in self.waiters[len(self._replies) :]:
            update = await waiter.next(max(0.0, until - loop.time()))
            if not isinstance(update, FinalAnswer):
                return None
            if not update.answers:
                return update
            self._replies.append(update)
        answers = (answer for reply in self._replies for answer in self._filled(reply))
        weights = dict.fromkeys(reply.weights for reply in self._replies if reply.weights)
        return FinalAnswer(None, tuple(answers), "several", weights=", ".join(weights))

    def _filled(self, reply: FinalAnswer) -> list[ChatAnswer]:
        answers = list(reply.answers[: self._each])
        return answers + [_MISSING] * (self._each - len(answers))

    def count_keepalive(self) -> None:
        """Count a keepalive that was sent to the user."""
        self.keepalives += 1
        self.waiters[len(self._replies)].count_keepalive()

    def leave(self) -> None:
        """End the wait: the user has disconnected or got an error."""
        self.left = True
        for waiter in self.waiters:
            waiter.leave()

    def confirm_delivery(self) -> None:
        """Record that the last byte was written while the user was connected."""
        for waiter in self.waiters:
            waiter.confirm_delivery()


async def submit_parts(
    groups: Groups, request: ChatRequest, stream_budget: float, max_prompts: int
) -> MultiPromptWaiter:
    """Submit all parts of a request; if one is refused, withdraw those before it.

    Args:
        groups: The registry.
        request: A request with `parts`.
        stream_budget: Seconds that the answer may take if it is streamed.
        max_prompts: Prompts per request: more would never fit in the queue.

    Raises:
        ApiError: The error of the part that was refused.
    """
    if len(request.parts) > max_prompts:
        count = len(request.parts)
        text = f"At most {max_prompts} prompts for each request are supported, got {count}."
        raise bad_value(text, "prompt")
    waiters: list[AnswerWaiter] = []
    request_count = RequestCount()
    try:
        for part in request.parts:
            waiter = groups.admission.admit(part, request_count)
            if request.stream:
                waiter.deadline = waiter.limit = waiter.started_at + stream_budget
            waiters.append(waiter)
    except BaseException:
        for waiter in waiters:
            waiter.leave()
        raise
    return MultiPromptWaiter(waiters, request.n)
