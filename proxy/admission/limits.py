"""All bounds of admission, and the counters of requests by session."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable

import msgspec

from core.settings import ProxySettings

MINUTE = 60.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All bounds of admission. A number of 0 is no bound; times are in seconds."""

    queue: int
    """Requests that wait for their episodes; a further one takes the place of another, if any."""
    groups: int
    """Groups of one server that hold episodes."""
    session_open: int
    """Open requests of one session."""
    session_minute: int
    """Requests of one session in a minute."""
    names: int = 4096
    """Sessions whose requests are counted."""
    conversations: int = 2048
    """Conversations that are found again by their content."""
    replay_window: float = 30.0
    """How long an answer is kept for a client that did not receive it."""
    replays: int = 1024
    replay_bytes: int = 16 << 20
    alerts: int = 20
    """Sessions over their limit that have an alert."""
    alert_time: float = 60.0
    """How long such an alert stays after the last refusal."""
    leave_grace: float = 0.4
    """How long a group stays open after its client has disconnected, so that a retry can join."""
    down_grace: float = 10.0
    """How long a server may be down before requests that wait for it are refused."""
    console_grace: float = 10.0
    """How long a detached console still counts as attached."""
    recover: float = 1.0
    """How long recovery may delay the start; it then continues in the background, and claims wait
    for it."""
    last_ends: float = 5.0
    """How long sealed groups may send their rewards after a drain."""

    @classmethod
    def of(cls, settings: ProxySettings, **others: float) -> "Limits":
        """Return the limits by the settings; `others` are those that no setting has."""
        return cls(
            queue=settings.queue_limit,
            groups=settings.max_groups,
            session_open=settings.session_cap,
            session_minute=settings.session_calls,
            **others,  # type: ignore[arg-type]
        )


class LimitExceeded(Exception):
    """A session has reached a limit.

    Attributes:
        limit: The limit in words, such as "8 open requests".
        retry_after: Whole seconds after which the next request is accepted.
    """

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after = retry_after


class RequestCount(Counter[tuple["RequestLimits", str]]):
    """Open groups of one request by limits and name: each of its prompts makes a group."""


class _Record(msgspec.Struct, eq=False, gc=False):
    calls: deque[float]
    """Times of the newest requests, at most as many as are allowed per minute."""
    open: int = 0
    turn: int = 0
    tools: bool = False


class RequestLimits:
    """Counters of the requests by name of a session: open ones, those of the last minute.

    Args:
        max_open: Requests open at once; 0 is no limit.
        calls_per_minute: Requests per minute; 0 is no limit.
        clock: Monotonic clock in seconds.
        max_names: Number of names that are remembered.
    """

    def __init__(
        self,
        max_open: int,
        calls_per_minute: int,
        clock: Callable[[], float],
        max_names: int = 4096,
    ) -> None:
        self._max_open = max_open
        self._calls_per_minute = calls_per_minute
        self._clock = clock
        self._max_names = max_names
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def open(
        self,
        name: str,
        count: RequestCount | None = None,
        *,
        helper: bool = False,
        tools: bool = False,
    ) -> int:
        """Count one more open request; call `close` when it ends.

        Args:
            name: The session.
            count: The request, which counts once, however many groups it makes; None for one group.
            helper: The request is a helper call, not a turn of the conversation.
            tools: The request offers tools, so the session is an agent's.

        Returns:
            Number of the turn within the session, from 1; 0 for a helper call.

        Raises:
            LimitExceeded: A limit is reached; the request is not counted.
        """
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = _Record(deque(maxlen=self._calls_per_minute))
        self._records.move_to_end(name)
        groups = 0 if count is None else count[self, name]
        if not groups:
            self._check(record)
            record.calls.append(self._clock())
            record.open += 1
            record.tools = record.tools or tools
            record.turn += not helper
            self._forget_idle()
        if count is not None:
            count[self, name] = groups + 1
        return 0 if helper else record.turn

    def close(self, name: str, count: RequestCount | None = None) -> None:
        """Record that a request has ended, or one of its groups."""
        if count is not None:
            count[self, name] -= 1
            if count[self, name]:
                return
        if (record := self._records.get(name)) is not None:
            record.open -= 1

    def has_tools(self, name: str) -> bool:
        """Return whether the session has sent requests with tools."""
        record = self._records.get(name)
        return record is not None and record.tools

    def _check(self, record: _Record) -> None:
        if self._max_open and record.open >= self._max_open:
            raise LimitExceeded(f"{self._max_open} open requests", 2)
        if record.calls and len(record.calls) == self._calls_per_minute:
            wait = record.calls[0] + MINUTE - self._clock()
            if wait > 0:
                raise LimitExceeded(f"{self._calls_per_minute} requests a minute", int(wait) + 1)

    def _forget_idle(self) -> None:
        """Drop the least recently used names without open requests."""
        while len(self._records) > self._max_names:
            idle = next((name for name, record in self._records.items() if not record.open), None)
            if idle is None:
                return
            del self._records[idle]
