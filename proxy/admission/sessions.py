"""Limits on the requests of one session or API key: open at once, and per minute."""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

MINUTE = 60.0
MAX_SESSIONS = 4096


class LimitExceeded(Exception):
    """A session or an API key has reached a limit.

    Attributes:
        retry_after: Whole seconds after which the next request is accepted.
        limit: The limit in words, such as "8 open requests".
    """

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after = retry_after


class _Session(msgspec.Struct, eq=False, gc=False):
    calls: list[float] = []
    """Times of its newest requests, at most as many as are allowed per minute."""
    open: int = 0
    turn: int = 0
    tools: bool = False


class RequestLimits:
    """Counters of the requests per session: open ones, and those of the last minute.

    Args:
        max_open: Requests open at once; 0 is no limit.
        calls_per_minute: Requests per minute; 0 is no limit.
        clock: Monotonic clock in seconds.
        max_sessions: Number of sessions that are remembered.
    """

    def __init__(
        self,
        max_open: int,
        calls_per_minute: int,
        clock: Callable[[], float],
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        self._max_open = max_open
        self._calls_per_minute = calls_per_minute
        self._clock = clock
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session: str, *, helper: bool = False, tools: bool = False) -> int:
        """Count one more open request; call `close` when it ends.

        Args:
            session: Name of the session.
            helper: The request is a helper call, not a turn of the conversation.
            tools: The request offers tools, so the session is an agent's.

        Returns:
            Number of the turn within the session, from 1; 0 for a helper call.

        Raises:
            LimitExceeded: A limit is reached; the request is not counted.
        """
        record = self._sessions.get(session)
        if record is None:
            record = self._sessions[session] = _Session()
        self._sessions.move_to_end(session)
        self._check(record)
        record.calls.append(self._clock())
        if len(record.calls) > self._calls_per_minute:
            del record.calls[0]
        record.open += 1
        record.tools = record.tools or tools
        record.turn += not helper
        self._prune()
        return 0 if helper else record.turn

    def close(self, session: str) -> None:
        """Record that a request of the session has ended."""
        if (record := self._sessions.get(session)) is not None:
            record.open -= 1

    def has_tools(self, session: str) -> bool:
        """Return whether the session has sent requests with tools."""
        record = self._sessions.get(session)
        return record is not None and record.tools

    def _check(self, record: _Session) -> None:
        if self._max_open and record.open >= self._max_open:
            raise LimitExceeded(f"{self._max_open} open requests", 2)
        if self._calls_per_minute and len(record.calls) >= self._calls_per_minute:
            wait = record.calls[0] + MINUTE - self._clock()
            if wait > 0:
                raise LimitExceeded(f"{self._calls_per_minute} requests a minute", int(wait) + 1)

    def _prune(self) -> None:
        """Drop the least recently used sessions without open requests."""
        excess = len(self._sessions) - self._max_sessions
        if excess > 0:
            idle = (name for name, record in self._sessions.items() if not record.open)
            for name in [next(idle, "") for _ in range(excess)]:
                self._sessions.pop(name, None)
