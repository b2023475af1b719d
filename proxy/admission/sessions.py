"""Limits on the requests of one session or one API key: open at once, and in a minute."""

import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

MINUTE = 60.0
SESSIONS = 4096


class LimitExceeded(Exception):
    """A session is over its cap.

    Attributes:
        retry_after: Whole seconds after which it may go on.
        limit: Which cap, in words.
    """

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after = retry_after


class _Session(msgspec.Struct, eq=False):
    calls: list[float] = []
    """When its newest requests came, as many as the cap looks at."""
    open: int = 0
    turn: int = 0
    tools: bool = False


class RequestLimits:
    """What sessions do: how many of their requests are open, and how many came in a minute.

    Args:
        cap: Requests open at once; 0 is no cap.
        calls: Requests in a minute; 0 is no cap.
        clock: Seconds that only go forward.
        limit: Sessions that are remembered.
    """

    def __init__(
        self,
        cap: int,
        calls: int,
        clock: Callable[[], float] = time.monotonic,
        limit: int = SESSIONS,
    ) -> None:
        self._cap = cap
        self._calls = calls
        self._clock = clock
        self._limit = limit
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session: str, *, helper: bool = False, tools: bool = False) -> int:
        """One request more; pair with `close`.

        Args:
            session: Its name.
            helper: It is a helper call, no turn of the conversation.
            tools: It offers tools: an agent's.

        Returns:
            Which turn of the session it is, from 1; 0 for a helper call.

        Raises:
            Runaway: a cap is reached; the request does not count.
        """
        one = self._sessions.get(session)
        if one is None:
            one = self._sessions[session] = _Session()
        self._sessions.move_to_end(session)
        self._check(one)
        one.calls.append(self._clock())
        if len(one.calls) > self._calls:
            del one.calls[0]
        one.open += 1
        one.tools = one.tools or tools
        one.turn += not helper
        self._prune()
        return 0 if helper else one.turn

    def close(self, session: str) -> None:
        """A request of the session is over."""
        if (one := self._sessions.get(session)) is not None:
            one.open -= 1

    def has_tools(self, session: str) -> bool:
        """Whether the session has sent requests with tools."""
        one = self._sessions.get(session)
        return one is not None and one.tools

    def _check(self, one: _Session) -> None:
        if self._cap and one.open >= self._cap:
            raise LimitExceeded(f"{self._cap} open requests", 2)
        if self._calls and len(one.calls) >= self._calls:
            left = one.calls[0] + MINUTE - self._clock()
            if left > 0:
                raise LimitExceeded(f"{self._calls} requests a minute", int(left) + 1)

    def _prune(self) -> None:
        """Forget what was unused for longest, but nothing that is open."""
        over = len(self._sessions) - self._limit
        if over > 0:
            idle = (name for name, one in self._sessions.items() if not one.open)
            for name in [next(idle, "") for _ in range(over)]:
                self._sessions.pop(name, None)
