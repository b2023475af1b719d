"""Cache of recent answers, for clients whose connection broke before they had read theirs.

The same bytes from the same sender get the same answer again, without a new group and without
training on it twice, if within the window

- the answer was not delivered: the client disconnected before its last byte;
- or the request is marked as a retry (`x-stainless-retry-count`, which the OpenAI and Anthropic
  SDKs send);
- or a session named by the client repeats it within `IMMEDIATE` seconds: the next turn of a session
  would contain the answer, so a gateway has lost it.

`proxy.replay` turns this off, restricts it to marked retries, or extends it to all requests. Any
other repetition of a request after a delivered answer is intended (another sample, a second pass
over a dataset, a click on "regenerate") and starts a new group.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ajet_swarm.api.chat import answer_of, read_json
from proxy.dataset_rows import HEADER
from proxy.dialects.client_marks import session_of
from proxy.groups.answer import AnswerWaiter, FinalAnswer

JOIN = "x-ajet-join"


RETRY_COUNT = "x-stainless-retry-count"


IMMEDIATE = 3.0
"""Seconds; a user who requests another sample by hand takes longer."""


class CachedAnswer(msgspec.Struct, eq=False, gc=False):
    """One answer.

    Its completions are stored as bytes: decoded, they take several times as much memory.
    """

    key: str
    group_id: str
    reply: FinalAnswer
    """The answer without its completions."""
    bodies: tuple[bytes, ...]
    at: float
    undelivered: int
    """Number of listeners that have not received all of it."""
    size: int


class _ReplayOwner(NamedTuple):
    """Owner of the waiter of a replayed answer: it is complete, and no episode is held for it."""

    group_id: str
    deltas: Sequence[Mapping[str, Any]] = ()
    weights: str = ""

    def spend_budget(self, waiter: AnswerWaiter) -> float:
        return waiter.limit

    def waiter_left(self, waiter: AnswerWaiter) -> None:
        pass


class ReplayCache:
    """Cache of the newest answers.

    Args:
        window: Seconds for which an answer is cached.
        clock: Monotonic clock in seconds.
        max_entries: Maximum number of cached answers.
        max_bytes: Maximum size of all cached answers in bytes.
        mode: `proxy.replay`.
    """

    def __init__(
        self,
        window: float,
        clock: Callable[[], float],
        max_entries: int = 1024,
        max_bytes: int = 16 << 20,
        mode: str = "owed",
    ) -> None:
        self._window = window
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._mode = mode
        self._bytes = 0
        self._answers: OrderedDict[str, CachedAnswer] = OrderedDict()
        """By key, oldest first."""

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def size(self) -> int:
        """Return the size of all cached answers in bytes."""
        return self._bytes

    def remember(
        self, key: str, group_id: str, reply: FinalAnswer, listeners: Sequence[AnswerWaiter]
    ) -> None:
        """Cache an answer.

        Args:
            key: The request's key.
            group_id: The group that produced the answer.
            reply: The answer.
            listeners: The waiters that get it; if empty, the only client has disconnected.
        """
        bodies = tuple([answer.body for answer in reply.answers])
        size = sum(map(len, bodies))
        self.forget(key)
        if self._mode == "off" or not reply.answers or size > self._max_bytes:
            return
        undelivered, bare = max(len(listeners), 1), replace(reply, answers=())
        cached = CachedAnswer(key, group_id, bare, bodies, self._clock(), undelivered, size)
        self._answers[key] = cached
        self._bytes += size
        for waiter in listeners:
            waiter.on_delivered = partial(_delivered, cached)
        while len(self._answers) > self._max_entries or self._bytes > self._max_bytes:
            self.forget(next(iter(self._answers)))

    def find(
        self, key: str, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> CachedAnswer | None:
        """Return the cached answer to replay for a request; None for a new request.

        Args:
            key: The request's key: equal for the same bytes from the same sender.
            headers: The request's headers; names in lower case.
            body: The request's body.
        """
        self._expire()
        cached = self._answers.get(key)
        if cached is None or is_retry(headers) or self._mode == "always":
            return cached
        if self._mode == "marked":
            return None
        immediate = self._clock() - cached.at <= IMMEDIATE and HEADER not in headers
        if cached.undelivered > 0:
            return cached
        repeats = immediate and may_join(headers) and bool(session_of(headers, body or {}))
        return cached if repeats else None

    def waiter(self, cached: CachedAnswer, stream: bool) -> AnswerWaiter:
        """Return a waiter that already has the answer."""
        answers = tuple([answer_of(200, body, read_json(body)) for body in cached.bodies])
        waiter = AnswerWaiter(_ReplayOwner(cached.group_id), stream, self._window)
        waiter.on_delivered = partial(_delivered, cached)
        waiter.deliver(replace(cached.reply, answers=answers))
        return waiter

    def forget(self, key: str) -> None:
        """Drop an answer: the next equal request starts a new group."""
        cached = self._answers.pop(key, None)
        if cached is not None:
            self._bytes -= cached.size

    def _expire(self) -> None:
        oldest = self._clock() - self._window
        while self._answers:
            cached = next(iter(self._answers.values()))
            if cached.at > oldest:
                return
            self.forget(cached.key)


def _delivered(cached: CachedAnswer) -> None:
    cached.undelivered -= 1


def may_join(headers: Mapping[str, str]) -> bool:
    """Return whether a request may share the answer of an identical one."""
    return headers.get(JOIN, "").strip().lower() not in ("no", "false", "0", "off")


def is_retry(headers: Mapping[str, str]) -> bool:
    """Return whether a request is marked as a retry."""
    count = headers.get(RETRY_COUNT, "")
    return count.isdecimal() and int(count) > 0
