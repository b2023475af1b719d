"""Validates the return values of hooks."""

import inspect
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from core.scoring.advantage import REWARD_LIMIT, usable
from proxy.rewards.hooks.protocol import Note

TEXT_LIMIT = 2_000
NOTES_LIMIT = 64


class BadResultError(Exception):
    """A hook's return value is unusable; the text gives the value and what was expected."""


def checked_rewards(result: object, n: int) -> list[float]:
    """Return the `n` rewards that a hook returned, as floats.

    Arrays and tensors (objects with `.tolist()`) count as the lists and numbers they hold.

    Raises:
        BadResultError: it is not a list or tuple of `n` finite numbers within `REWARD_LIMIT`.
    """
    expected = f"expected a list of {n} numbers, one for each answer"
    result = _plain(result)
    if not isinstance(result, list | tuple):
        raise BadResultError(f"returned {_shown(result)}, {expected}{_hint(result)}")
    if len(result) != n:
        raise BadResultError(f"returned {len(result)} rewards for {n} answers, {expected}")
    return [_reward(value, index, expected) for index, value in enumerate(result)]


def _reward(value: object, index: int, expected: str) -> float:
    number = _number(value)
    if number is None:
        raise BadResultError(f"reward {index} is {_shown(value)}, {expected}{_hint(value)}")
    if not usable(number):
        limit = f"finite and at most {REWARD_LIMIT:g} in size"
        raise BadResultError(f"reward {index} is {number}, {expected}, {limit}")
    return number


def _plain(value: object) -> object:
    """Return the list or number that an array or tensor holds; any other value unchanged."""
    if isinstance(value, Real | str) or not callable(to_list := getattr(value, "tolist", None)):
        return value
    try:
        return to_list()
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return value  # the error message shows the value itself


def _number(value: object) -> float | None:
    value = _plain(value)
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")
    except (TypeError, ValueError):
        return None


def _hint(value: object) -> str:
    """Return a hint at a common mistake; empty if there is none."""
    if not inspect.isawaitable(value):
        return "; write float(...)" if hasattr(type(value), "__float__") else ""
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns later, elsewhere, that it was never awaited
    return "; it was never awaited"


def _shown(value: object) -> str:
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '...'}"


def notes_of(before: Sequence[Mapping[str, Any]], after: Sequence[dict[str, Any]]) -> list[Note]:
    """Return what a hook added to each answer: finite numbers as values, texts as reasons."""
    return [_note(old, new) for old, new in zip(before, after, strict=True)]


def _note(old: Mapping[str, Any], new: dict[str, Any]) -> Note:
    values: dict[str, float] = {}
    texts: dict[str, str] = {}
    for key, value in list(new.items()):
        if key in old or len(values) + len(texts) >= NOTES_LIMIT:
            continue
        if (number := _number(value)) is not None:
            if usable(number):
                values[str(key)] = number
            else:
                texts[str(key)] = f"{number} (not a usable number)"
        elif isinstance(value, str):
            texts[str(key)] = value[:TEXT_LIMIT]
    return Note(values, texts)
