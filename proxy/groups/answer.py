"""A user's wait for an answer: the deltas, the final answer, the deadline."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ajet_swarm.api.chat import ChatAnswer
from core.dialects.errors import ApiError
from proxy.http.errors import ProxyStopping


class FinalAnswer(msgspec.Struct, frozen=True):
    """The reply to the user: answers of candidates, or an error."""

    index: int | None
    """The candidate whose answer comes first; None for an error."""
    answers: tuple[ChatAnswer, ...]
    """One for each requested choice, best first; fewer if fewer had arrived, none for an
    error."""
    why: str
    """winner, provisional, only, live, replayed, several (one for each prompt) or error."""
    error: ApiError | None = None
    others: tuple[int, ...] = ()
    """Candidates of the further answers."""
    weights: str = ""
    """Versions of the weights that produced the answers, see `core.state.server`; empty where
    nothing is trained."""

    @property
    def answer(self) -> ChatAnswer | None:
        """The first answer."""
        return self.answers[0] if self.answers else None


class Delta(msgspec.Struct, frozen=True):
    """One delta of a streamed answer."""

    delta: Mapping[str, Any]
    """Any of `reasoning`, `content` and `tool_calls`. A tool call first has its index, id, type and
    name, then its index and pieces of its arguments."""


class WaiterOwner(Protocol):
    """The source of a waiter's answer: an open group, or a replayed answer."""

    @property
    def group_id(self) -> str:
        """Id of the group."""
        ...

    @property
    def deltas(self) -> Sequence[Mapping[str, Any]]:
        """The deltas of the streamed candidate so far."""
        ...

    @property
    def weights(self) -> str | None:
        """Versions of the weights that generate the answer; None if soon known, empty if not."""
        ...

    def spend_budget(self, waiter: "AnswerWaiter") -> float:
        """Give a waiter whose deadline has passed an answer or an error, or let it wait on.

        Returns:
            Until when it waits on, on the loop's clock; any time if it got a reply.
        """
        ...

    def waiter_left(self, waiter: "AnswerWaiter") -> None:
        """Record that the user has disconnected."""
        ...


class GroupAnswer(msgspec.Struct, eq=False):
    """What the users of one group wait for."""

    waiters: "set[AnswerWaiter]" = set()
    final: FinalAnswer | None = None
    live: bool = False
    """The user gets the first candidate, whichever candidate wins."""
    streamed: int | None = None
    """The candidate whose deltas the user has begun to read: no other answer may follow them."""
    deltas: list[dict[str, Any]] = []
    """Its deltas so far."""


class AnswerWaiter:
    """One user who waits for the answer of a group. Only one task reads it."""

    def __init__(
        self,
        owner: WaiterOwner,
        stream: bool,
        budget: float,
        loop: asyncio.AbstractEventLoop | None = None,
        limit: float = 0.0,
    ) -> None:
        """Args:
        owner: The source of the answer.
        stream: Whether it reads deltas.
        budget: Seconds until it takes the best answer so far.
        loop: The running loop, if known.
        limit: Seconds until it gets an error if there is none; at least `budget`.
        """
        self.owner = owner
        self.stream = stream
        self._loop = loop or asyncio.get_running_loop()
        self.started_at = self._loop.time()
        self.deadline = self.started_at + budget
        self.limit = self.started_at + max(budget, limit)
        self.keepalives = 0
        """Number of keepalives that were sent."""
        self.on_delivered: Callable[[], None] | None = None
        """Called once, when the user has received the whole answer."""
        self.late_error: ApiError | None = None
        """The error at the deadline; None for the usual one."""
        self._position = 0
        self.left = False
        """Whether the user has disconnected."""
        self._reply: FinalAnswer | None = None
        self._wakeup = asyncio.Event()

    @property
    def group_id(self) -> str:
        return self.owner.group_id

    @property
    def weights(self) -> str | None:
        """Versions of the weights that generate the answer; None if soon known, empty if not."""
        return self.owner.weights if self._reply is None else self._reply.weights

    @property
    def age(self) -> float:
        """Seconds since the request arrived."""
        return self._loop.time() - self.started_at

    @property
    def has_streamed(self) -> bool:
        """Whether deltas were returned: the stream then ends with `finish` or an error, never with
        another answer."""
        return self._position > 0

    async def next(self, seconds: float) -> FinalAnswer | Delta | None:
        """Return the next delta or the final answer; None after `seconds`, or if the user has left.

        Deltas come before the final answer, and only on a stream. From the deadline on the
        provisional best is the answer; without any, see `Run.spend_budget`.
        """
        until = self._loop.time() + seconds
        while not self.left:
            if self.stream and self._position < len(self.owner.deltas):
                return self._next_delta()
            if self._reply is not None:
                return self._reply
            now, end = self._loop.time(), self.deadline
            if now >= end:
                end = self.owner.spend_budget(self)
            if self._reply is None:
                if now >= until:
                    return None
                self._wakeup.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(until, end)):
                        await self._wakeup.wait()
        return None

    def count_keepalive(self) -> None:
        """Count a keepalive that was sent to the user."""
        self.keepalives += 1

    def leave(self) -> None:
        """End the wait: the user has disconnected or got an error. The last waiter ends the run."""
        if self._reply is None and not self.left:
            self.left = True
            self.wake()
            self.owner.waiter_left(self)

    def postpone(self, seconds: float) -> None:
        """Extend the deadline by `seconds`, up to the limit."""
        self.deadline = min(self.deadline + seconds, self.limit)

    def expire_now(self) -> None:
        """End the wait because the proxy stops."""
        self.late_error = ProxyStopping()
        self.deadline = 0.0
        self.wake()

    def confirm_delivery(self) -> None:
        """Record that the last byte was written while the user was connected."""
        callback, self.on_delivered = self.on_delivered, None
        if callback is not None:
            callback()

    def deliver(self, reply: FinalAnswer) -> None:
        """Hand over the final answer; only the first one counts."""
        if self._reply is None and not self.left:
            self._reply = reply
            self.wake()

    def wake(self) -> None:
        """Wake the reading task."""
        self._wakeup.set()

    def _next_delta(self) -> Delta:
        """Return the next delta; pending text is joined into one."""
        deltas = self.owner.deltas
        first = deltas[self._position]
        self._position += 1
        name = next(iter(first)) if len(first) == 1 else ""
        if name not in ("content", "reasoning"):
            return Delta(first)
        texts = [first[name]]
        while self._position < len(deltas) and deltas[self._position].keys() == {name}:
            texts.append(deltas[self._position][name])
            self._position += 1
        return Delta(first if len(texts) == 1 else {name: "".join(texts)})
