"""How connections were used last, which decides whether a request may overtake others. No I/O."""

from collections.abc import Callable

IDLE = 3.0
"""Seconds without a request after which a connection counts as new. It exceeds the `Retry-After` of
a full queue, so that a retry on the same connection does not overtake."""


class ConnectionUse:
    """Use of a connection by one request.

    Attributes:
        lag: Seconds by which the request counts as older than it is among those that overtake: 0
            on a connection that is new or was idle; None if it may not overtake.
        waited: The request waited in order for its turn, or the queue was full: the next one on
            the connection may not overtake if it follows at once.
        ended: When it was answered.
    """

    __slots__ = ("ended", "lag", "waited")

    def __init__(self, lag: float | None = 0.0) -> None:
        self.lag = lag
        self.waited = False
        self.ended = 0.0


class ConnectionUses:
    """The last uses of all connections that were used less than `IDLE` ago.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[object, ConnectionUse] = {}
        """Address and port of the client -> its last use, in the order of their ends."""

    def __len__(self) -> int:
        return len(self._last)

    def begin(self, client: object) -> ConnectionUse:
        """Return the use of a connection by a new request.

        Args:
            client: Address and port of the client.
        """
        now = self._clock()
        while self._last:
            oldest, use = next(iter(self._last.items()))
            if now - use.ended < IDLE:
                break
            del self._last[oldest]
        last = self._last.pop(client, None)
        if last is None:
            return ConnectionUse()
        return ConnectionUse(None if last.waited else IDLE - (now - last.ended))

    def end(self, client: object, use: ConnectionUse) -> None:
        """Record that a request was answered."""
        use.ended = self._clock()
        self._last[client] = use
