"""Checks that tests repeat."""

from typing import TypeVar

T = TypeVar("T")


def missing(text: str, *words: str) -> str:
    """Return the words that `text` has not, and the text; empty when it has all."""
    absent = [word for word in words if word not in text]
    return f"{absent} is not in:\n{text}" if absent else ""


def present(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value
