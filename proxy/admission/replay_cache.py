"""Answers given a moment ago, for clients whose connection broke before they had read theirs.

The same bytes from the same sender get the same answer again, without a new group and without
being trained on twice, when within the window

- the answer was not delivered: the client had left, or the connection broke before the last byte;
- or the request says itself that it is a retry (`x-stainless-retry-count`, which the OpenAI and
  Anthropic SDKs send);
- or a session that the client marks sends it `AT_ONCE`: the next turn of a session has the answer
  in it, so this is a gateway that lost what it was given.

`proxy.replay` narrows this to what is marked as a retry, or widens it to all. Else the same request
after a delivered answer is asked on purpose (another sample, a second pass over a dataset, a click
on "regenerate") and makes a new group.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.api.outcomes import answer_of, read_json
from proxy.dataset_rows import HEADER as ROW
from proxy.dialects.session_marks import session_of
from proxy.groups.waiter import AnswerWaiter, FinalAnswer

JOIN = "x-ajet-join"
RETRIED = "x-stainless-retry-count"
AT_ONCE = 3.0
"""Seconds; who wants another sample of a session's turn by hand takes longer."""
ENTRIES = 1024
BYTES = 16 << 20


class CachedAnswer(msgspec.Struct, eq=False):
    """One answer that was given.

    Of its completions only the bytes are kept: read, they take several times as much.
    """

    key: str
    group_id: str
    index: int | None
    bodies: tuple[bytes, ...]
    why: str
    others: tuple[int, ...]
    at: float
    owed: int
    """Listeners that have not got all of it."""
    size: int

    def reply(self) -> FinalAnswer:
        """The answer once more."""
        answers = tuple([answer_of(200, body, read_json(body)) for body in self.bodies])
        return FinalAnswer(self.index, answers, self.why, others=self.others)


class ReplayOwner:
    """What the waiter of a replayed answer is for."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    @property
    def group_id(self) -> str:
        """The group that gave the answer."""
        return self._group_id

    @property
    def deltas(self) -> Sequence[Mapping[str, Any]]:
        """None: the answer is whole."""
        return ()

    def spend_budget(self, waiter: AnswerWaiter) -> None:
        """The answer is there already."""

    def waiter_left(self, waiter: AnswerWaiter) -> None:
        """Nothing is held for it."""


class ReplayCache:
    """The newest answers.

    Args:
        window: Seconds an answer is kept; 0 keeps none.
        clock: Seconds that only go forward.
        entries: Answers that are kept at most.
        size: Bytes of them.
        mode: `proxy.replay`.
    """

    def __init__(
        self,
        window: float,
        clock: Callable[[], float],
        entries: int = ENTRIES,
        size: int = BYTES,
        mode: str = "owed",
    ) -> None:
        self._window = window
        self._clock = clock
        self._entries = entries
        self._most = size
        self._mode = mode
        self._bytes = 0
        self._answers: OrderedDict[str, CachedAnswer] = OrderedDict()
        """By key, oldest first."""

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def remember(
        self, key: str, group_id: str, reply: FinalAnswer, listeners: Sequence[AnswerWaiter]
    ) -> None:
        """An answer was given to these listeners; without any, it is owed to the one that left."""
        bodies = tuple([answer.body for answer in reply.answers])
        size = sum(map(len, bodies))
        self.forget(key)
        if not self._window or not reply.answers or size > self._most:
            return
        owed = max(len(listeners), 1)
        one = CachedAnswer(
            key, group_id, reply.index, bodies, reply.why, reply.others, self._clock(), owed, size
        )
        self._answers[key] = one
        self._bytes += size
        for waiter in listeners:
            waiter.on_delivered = lambda: self._delivered(one)
        while len(self._answers) > self._entries or self._bytes > self._most:
            self.forget(next(iter(self._answers)))

    def find(
        self, key: str, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> CachedAnswer | None:
        """The answer a request gets once more, or None.

        Args:
            key: Of the request: equal for the same bytes from the same sender.
            headers: Lower-case names.
            body: The request's.
        """
        self._expire()
        one = self._answers.get(key)
        if one is None or is_retry(headers) or self._mode == "always":
            return one
        if self._mode == "marked":
            return None
        return one if one.owed > 0 or self._at_once(one, headers, body or {}) else None

    def _at_once(
        self, one: CachedAnswer, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> bool:
        """Whether a session that is marked as one asks again before it can have meant to."""
        if self._clock() - one.at > AT_ONCE or ROW in headers or not joins(headers):
            return False
        return bool(session_of(headers, body))

    def waiter(self, one: CachedAnswer, stream: bool) -> AnswerWaiter:
        """A waiter that has the answer."""
        waiter = AnswerWaiter(ReplayOwner(one.group_id), stream, self._window)
        waiter.on_delivered = lambda: self._delivered(one)
        waiter.deliver(one.reply())
        return waiter

    def forget(self, key: str) -> None:
        """The next request of this kind is asked anew."""
        one = self._answers.pop(key, None)
        if one is not None:
            self._bytes -= one.size

    def _delivered(self, one: CachedAnswer) -> None:
        one.owed -= 1

    def _expire(self) -> None:
        oldest = self._clock() - self._window
        while self._answers:
            one = next(iter(self._answers.values()))
            if one.at > oldest:
                return
            self.forget(one.key)


def joins(headers: Mapping[str, str]) -> bool:
    """Whether a request may have the answer of another one that is the same."""
    return headers.get(JOIN, "").strip().lower() not in ("no", "false", "0", "off")


def is_retry(headers: Mapping[str, str]) -> bool:
    """Whether a request says that it was sent before."""
    told = headers.get(RETRIED, "")
    return told.isdecimal() and int(told) > 0
