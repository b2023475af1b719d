"""A common limit on the bytes of all request bodies in memory. No I/O."""

from proxy.http.errors import ApiError

BODY_BYTES = "ajet.body_bytes"
"""Key of a scope: the `BodyReservation` of its request. The router sets it and releases the bytes
when the request is answered."""

_FULL = "The server holds too many request bodies in memory. Please try again later."
_RETRY_AFTER = 5
"""Seconds; large bodies stay in memory until their requests are answered."""


class BodyBudget:
    """The limit; not thread-safe.

    Args:
        max_bytes: Maximum number of bytes of all bodies together.

    Attributes:
        used: Bytes in memory now.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used = 0

    def body(self) -> "BodyReservation":
        """Return an empty reservation for one more request."""
        return BodyReservation(self)

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes fit."""
        return self.used + size <= self._max_bytes


class BodyReservation:
    """The share of the budget that the body of one request takes until it is released."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._size = 0

    def has_room(self, size: int) -> bool:
        """Return whether a body of `size` bytes would fit now; reserve nothing."""
        return self._budget.has_room(size - self._size)

    def add(self, size: int) -> bool:
        """Count `size` more bytes; return False, and count nothing, if they do not fit."""
        if not self._budget.has_room(size):
            return False
        self._budget.used += size
        self._size += size
        return True

    def release(self) -> None:
        """Release the bytes: the body is no longer in memory."""
        self._budget.used -= self._size
        self._size = 0


def budget_exceeded() -> ApiError:
    """Return the error for a body that does not fit."""
    refusal = ApiError(503, _RETRY_AFTER, _FULL)
    refusal.closes = True
    return refusal
