"""Answers given a moment ago, for clients whose connection broke before they had read theirs.

The same bytes from the same sender get the same answer again, without a new group and without
being trained on twice, when within the window

- the answer was not delivered: the client had left, or the connection broke before the last byte;
- or the request says itself that it is a retry (`x-stainless-retry-count`, which the OpenAI and
  Anthropic SDKs send).

Else the same request after a delivered answer is asked on purpose (another sample, a second pass
over a dataset, a click on "regenerate") and makes a new group.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.ticket import Reply, Ticket

RETRIED = "x-stainless-retry-count"
ENTRIES = 1024
BYTES = 16 << 20


@dataclass(slots=True)
class Answered:
    """One answer that was given."""

    key: str
    group_id: str
    reply: Reply
    at: float
    owed: int
    """Listeners that have not got all of it."""
    size: int


class Host:
    """What the ticket of a replayed answer is for."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    @property
    def group_id(self) -> str:
        """The group that gave the answer."""
        return self._group_id

    @property
    def pieces(self) -> Sequence[Mapping[str, Any]]:
        """None: the answer is whole."""
        return ()

    def spend_budget(self, ticket: Ticket) -> None:
        """The answer is there already."""

    def left(self, ticket: Ticket) -> None:
        """Nothing is held for it."""


class Replay:
    """The newest answers.

    Args:
        window: Seconds an answer is kept; 0 keeps none.
        clock: Seconds that only go forward.
        entries: Answers that are kept at most.
        size: Bytes of them.
    """

    def __init__(
        self,
        window: float,
        clock: Callable[[], float],
        entries: int = ENTRIES,
        size: int = BYTES,
    ) -> None:
        self._window = window
        self._clock = clock
        self._entries = entries
        self._most = size
        self._bytes = 0
        self._answers: OrderedDict[str, Answered] = OrderedDict()
        """By key, oldest first."""

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def remember(self, key: str, group_id: str, reply: Reply, listeners: Sequence[Ticket]) -> None:
        """An answer was given to these listeners; without any, it is owed to the one that left."""
        size = sum(len(answer.body) for answer in reply.answers)
        self.forget(key)
        if not self._window or not reply.answers or size > self._most:
            return
        one = Answered(key, group_id, reply, self._clock(), max(len(listeners), 1), size)
        self._answers[key] = one
        self._bytes += size
        for ticket in listeners:
            ticket.on_delivered = lambda: self._delivered(one)
        while len(self._answers) > self._entries or self._bytes > self._most:
            self.forget(next(iter(self._answers)))

    def find(self, key: str, headers: Mapping[str, str]) -> Answered | None:
        """The answer a request gets once more, or None.

        Args:
            key: Of the request: equal for the same bytes from the same sender.
            headers: Lower-case names.
        """
        self._expire()
        one = self._answers.get(key)
        return one if one is not None and (one.owed > 0 or is_retry(headers)) else None

    def ticket(self, one: Answered, stream: bool) -> Ticket:
        """A ticket that has the answer."""
        ticket = Ticket(Host(one.group_id), stream, self._window)
        ticket.on_delivered = lambda: self._delivered(one)
        ticket.give(one.reply)
        return ticket

    def forget(self, key: str) -> None:
        """The next request of this kind is asked anew."""
        one = self._answers.pop(key, None)
        if one is not None:
            self._bytes -= one.size

    def _delivered(self, one: Answered) -> None:
        one.owed -= 1

    def _expire(self) -> None:
        oldest = self._clock() - self._window
        while self._answers:
            one = next(iter(self._answers.values()))
            if one.at > oldest:
                return
            self.forget(one.key)


def is_retry(headers: Mapping[str, str]) -> bool:
    """Whether a request says that it was sent before."""
    told = headers.get(RETRIED, "")
    return told.isdecimal() and int(told) > 0
