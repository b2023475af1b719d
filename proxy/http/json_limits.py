"""Limits on the number of JSON values in a body, checked before it is parsed. No I/O.

The cost of a body depends on its number of values, not on its bytes: a long string is cheap, while
a list of a million small values would block the event loop wherever it is traversed.
"""

from collections.abc import Mapping
from typing import Any

from core.dialects.errors import ApiError, bad_request

MOST_VALUES = 100_000
"""Maximum number of JSON values in a body; 2,000 messages of an agent are about 50,000."""
MOST_FIELDS = 10_000
"""Maximum number of top-level fields: the body is copied for each of several prompts."""


def check_values(data: bytes, limit: int = MOST_VALUES) -> None:
    """Refuse a body with too many values, in a small part of the time it takes to parse it.

    Raises:
        ApiError: The body has more than `limit` values.
    """
    if len(data) > 2 * limit and has_more_values(data, limit):
        raise _too_many(limit, "JSON values")


def check_fields(body: Mapping[str, Any], limit: int = MOST_FIELDS) -> None:
    """Refuse a body with too many fields.

    Raises:
        ApiError: The body has more than `limit` fields.
    """
    if len(body) > limit:
        raise _too_many(limit, "fields")


def _too_many(limit: int, unit: str) -> ApiError:
    return bad_request(f"The request body holds more than {limit} {unit}.", None)


def has_more_values(data: bytes, limit: int) -> bool:
    """Return whether a JSON text has more than `limit` values; a key and its value count as one."""
    if _separators(data) <= limit:
        return False  # separators within strings are counted too
    compact = data
    if b"\\" in data:
        compact = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if compact.count(b'"') > 4 * limit:  # a value has at most two strings: itself and its key
        return True
    return _separators(b"".join(compact.split(b'"')[::2])) > limit


def _separators(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")
