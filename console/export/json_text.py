"""Values of any shape that a file has as JSON text, so that its column has one type in all rows."""

from collections.abc import Mapping
from typing import Any

import msgspec


class JsonText:
    """A value that is written as JSON text; it is redacted as a value before.

    Args:
        value: Plain JSON value.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


def encoded(value: Any) -> str:
    """Return the JSON text of a value, keys in alphabetical order."""
    return msgspec.json.encode(value, order="sorted").decode()


def with_texts(value: Any) -> Any:
    """Return a value in which each `JsonText` is its text."""
    if isinstance(value, JsonText):
        return encoded(value.value)
    if isinstance(value, Mapping):
        return {key: with_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(item) for item in value]
    return value
