"""Groups as the reducer makes them, and lines as text, for tests without a screen."""

from collections.abc import Iterable
from typing import Any

from console.text.lines import Line, line_text
from core.state import Group
from tests.support.console import HOSTILE, group_events, state_of

HOSTILE_TEXTS = [
    HOSTILE,
    "a\x1b]52;c;aGk=\x07b",
    "\u200b\u200d\ufeff" * 40,
    "e" + "\u0301" * 5_000,
    "漢字" * 300,
    "⚠️ " * 50,
    "\ud800 lone",
    "x" * 1_000_000,
    "\t\ttabs\r\nand\vmore",
    "",
]
"""Texts that must not change a terminal, a layout or the text on screen."""


def group(number: int = 1, **more: Any) -> Group:
    """One group, scored and awaiting a rating by default."""
    more.setdefault("until", "AWAITING_RATING")
    return next(iter(state_of(*group_events(number, **more)).groups.values()))


def rows_of(lines: Iterable[Line]) -> list[str]:
    """Lines without their styles."""
    return [line_text(line) for line in lines]


def text_of(lines: Any) -> str:
    """Lines as plain text."""
    return "\n".join("".join(text for text, _ in line) for line in lines)
