"""What a request's handler holds while it waits for its answer: the waiter, its news, its reply."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ajet_swarm.api.outcomes import ChatAnswer
from proxy.http.errors import ApiError, ProxyStopping


class FinalAnswer(msgspec.Struct, frozen=True):
    """What the user gets: the answers of candidates, or a refusal."""

    index: int | None
    """Of the candidate whose answer comes first; None on a refusal."""
    answers: tuple[ChatAnswer, ...]
    """One for each choice that was asked for, best first; fewer when fewer were there by then,
    none on a refusal."""
    why: str
    """winner, provisional, only, live, replayed, several (one for each prompt) or error."""
    error: ApiError | None = None
    others: tuple[int, ...] = ()
    """Candidates of the further answers."""

    @property
    def answer(self) -> ChatAnswer | None:
        """The first answer."""
        return self.answers[0] if self.answers else None


class Delta(msgspec.Struct, frozen=True):
    """A part of the answer, told as it comes: one delta of a chat stream."""

    delta: Mapping[str, Any]
    """Any of `reasoning`, `content` and `tool_calls`; a tool call is first told by index, id, type
    and name, then by index and pieces of its arguments."""


class WaiterOwner(Protocol):
    """What a waiter is for: a run."""

    @property
    def group_id(self) -> str:
        """The group's name."""
        ...

    @property
    def deltas(self) -> Sequence[Mapping[str, Any]]:
        """The deltas of the live candidate so far."""
        ...

    def spend_budget(self, waiter: "AnswerWaiter") -> None:
        """The listener's patience is over: give it something."""
        ...

    def waiter_left(self, waiter: "AnswerWaiter") -> None:
        """The listener has gone."""
        ...


class AnswerWaiter:
    """One listener of a run: a user that waits for its answer. Read by one task only."""

    __slots__ = (
        "_at",
        "_left",
        "_loop",
        "_news",
        "_reply",
        "deadline",
        "keepalives",
        "late_error",
        "on_delivered",
        "owner",
        "started_at",
        "stream",
    )  # fmt: skip

    def __init__(
        self,
        owner: WaiterOwner,
        stream: bool,
        budget: float,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.owner = owner
        self.stream = stream
        self._loop = loop or asyncio.get_running_loop()
        self.started_at = self._loop.time()
        self.deadline = self.started_at + budget
        self.keepalives = 0
        """How often the wait was long enough for a sign of life."""
        self.on_delivered: Callable[[], None] | None = None
        """Called once, when the user has all of the answer."""
        self.late_error: ApiError | None = None
        """What it is told when nothing is there by its deadline, if not that it took too long."""
        self._at = 0
        self._left = False
        self._reply: FinalAnswer | None = None
        self._news: asyncio.Future[None] | None = None

    @property
    def group_id(self) -> str:
        return self.owner.group_id

    @property
    def age(self) -> float:
        """Seconds since it came."""
        return self._loop.time() - self.started_at

    @property
    def left(self) -> bool:
        """The user is gone."""
        return self._left

    @property
    def has_streamed(self) -> bool:
        """Pieces were handed out: the end is a `finish` or an error, never another answer."""
        return self._at > 0

    async def next(self, seconds: float) -> FinalAnswer | Delta | None:
        """What comes next, or None: `seconds` have passed without news, or the user has left.

        Pieces come before the reply, and only on a stream. At the waiter's budget the provisional
        best is the reply; without any candidate by then, or in the midst of pieces, it is a 503.
        """
        loop = self._loop
        until = loop.time() + seconds
        while not self._left:
            if self.stream and self._at < len(self.owner.deltas):
                return self._piece()
            if self._reply is not None:
                return self._reply
            now = loop.time()
            if now >= self.deadline:
                self.owner.spend_budget(self)
            elif now >= until:
                return None
            else:
                await self._wait(min(until, self.deadline))
        return None

    def count_keepalive(self) -> None:
        """The user was sent that there is no news."""
        self.keepalives += 1

    def leave(self) -> None:
        """The user is gone, or was told off; the last one to leave ends the run."""
        if self._reply is None and not self._left:
            self._left = True
            self.wake()
            self.owner.waiter_left(self)

    def postpone(self, seconds: float, most: float) -> None:
        """Wait `seconds` longer, in all at most `most` seconds."""
        self.deadline = max(self.deadline, min(self.deadline + seconds, self.started_at + most))

    def expire_now(self) -> None:
        """The proxy stops: an end is wanted now."""
        self.late_error = ProxyStopping()
        self.deadline = 0.0
        self.wake()

    def confirm_delivery(self) -> None:
        """The last byte of the answer was written and the user was still there."""
        told, self.on_delivered = self.on_delivered, None
        if told is not None:
            told()

    def deliver(self, reply: FinalAnswer) -> None:
        """Hand the reply over; the first one counts."""
        if self._reply is None and not self._left:
            self._reply = reply
            self.wake()

    def wake(self) -> None:
        """There is news."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _piece(self) -> Delta:
        """The next delta; text that has piled up comes as one."""
        pieces = self.owner.deltas
        first = pieces[self._at]
        self._at += 1
        name = next(iter(first)) if len(first) == 1 else ""
        if name not in ("content", "reasoning"):
            return Delta(first)
        texts = [first[name]]
        while self._at < len(pieces) and pieces[self._at].keys() == {name}:
            texts.append(pieces[self._at][name])
            self._at += 1
        return Delta(first if len(texts) == 1 else {name: "".join(texts)})

    async def _wait(self, until: float) -> None:
        loop = self._loop
        self._news = loop.create_future()
        alarm = loop.call_at(until, self.wake)
        try:
            await self._news
        finally:
            alarm.cancel()
            self._news = None
