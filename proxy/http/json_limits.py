"""How much there is to read in a body, seen before it is read. No I/O.

What a value costs does not go by its bytes: a text is read in one go, while a list of a million
small things holds everybody else up, in each place that walks over it.
"""

from collections.abc import Mapping
from typing import Any

from proxy.http.errors import ApiError, bad_request

MOST_VALUES = 100_000
"""JSON values one body may hold; 2,000 messages of an agent are about 50,000."""
MOST_FIELDS = 10_000
"""Fields of the body itself, which is copied for each prompt."""


def check_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Refuse a body of very many values, in a small part of the time it would take to read it.

    Raises:
        ApiError: it holds more than `most`.
    """
    if len(data) > 2 * most and has_more_values(data, most):
        raise _too_many(most, "JSON values")


def check_fields(body: Mapping[str, Any], most: int = MOST_FIELDS) -> None:
    """Refuse a body of very many fields.

    Raises:
        ApiError: it has more than `most`.
    """
    if len(body) > most:
        raise _too_many(most, "fields")


def _too_many(most: int, what: str) -> ApiError:
    return bad_request(f"The request body holds more than {most} {what}.", None)


def has_more_values(data: bytes, most: int) -> bool:
    """Whether there are more than `most` values in a JSON text; a field counts with its value."""
    if _marks(data) <= most:
        return False  # what is in texts counted, too
    bare = data
    if b"\\" in data:
        bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * most:  # a value comes with two texts at most, its own and its name
        return True
    return _marks(b"".join(bare.split(b'"')[::2])) > most


def _marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")
