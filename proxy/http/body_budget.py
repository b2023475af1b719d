"""One bound on the bytes of request bodies in memory, for all connections together. No I/O."""

from proxy.http.errors import ApiError

BODY_BYTES = "ajet.body_bytes"
"""Key of a scope: the `BodyReservation` of its request. The router sets it and releases the bytes
when the request is answered."""

_FULL = "The server holds too many request bodies in memory. Please try again later."
_RETRY_AFTER = 5
"""Seconds; large bodies stay in memory until their requests are answered."""


class BodyBudget:
    """The bound. It belongs to one event loop.

    Args:
        most: Bytes of all bodies together.

    Attributes:
        used: Bytes that are in memory now.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0

    def body(self) -> "BodyReservation":
        """The bytes of one more request, none yet."""
        return BodyReservation(self)

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit."""
        return self.used + size <= self._most


class BodyReservation:
    """What one request's body takes of the room, until it is released."""

    __slots__ = ("_room", "_size")

    def __init__(self, room: BodyBudget) -> None:
        self._room = room
        self._size = 0

    def has_room(self, size: int) -> bool:
        """Whether a body of `size` bytes would fit now; reserves nothing."""
        return self._room.has_room(size - self._size)

    def add(self, size: int) -> bool:
        """Count `size` more bytes; False, and nothing is counted, when they do not fit."""
        if not self._room.has_room(size):
            return False
        self._room.used += size
        self._size += size
        return True

    def release(self) -> None:
        """The body is no longer in memory."""
        self._room.used -= self._size
        self._size = 0


def budget_exceeded() -> ApiError:
    """The answer to a body for which there is no room."""
    refusal = ApiError(503, _RETRY_AFTER, _FULL)
    refusal.closes = True
    return refusal
