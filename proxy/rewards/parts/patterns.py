"""Regular expressions that cannot hold the proxy up.

An expression of the operator meets whatever a model writes. Those that take exponential time on the
wrong text are refused when they are read; of a text only the ends are looked at, and what still
takes too long is broken off.
"""

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]  # the parsed form has no public name
from re import _parser as parser  # type: ignore[attr-defined]  # the same
from typing import Any

from proxy.rewards.part import PartAbstained, SettingError

LOOKED_AT = 8_000
"""Characters of a text that are searched: its first and its last half of that."""

LONGEST = 0.2
"""Seconds of processor time that the expressions of a part may take for one group."""

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
_MANY = 64
"""Repeats of more than that count as endless."""


class Pattern:
    """One expression."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self.text = text
        self._search = re.compile(text, flags).search

    def found(self, text: str) -> bool:
        """Whether it fits somewhere in either end of `text`."""
        if len(text) <= LOOKED_AT:
            return self._search(text) is not None
        half = LOOKED_AT // 2
        return self._search(text[:half]) is not None or self._search(text[-half:]) is not None


class _Watch:
    """Whether a match is to be broken off."""

    armed = False
    set = False


def _ring(number: int, frame: Any) -> None:
    """The match looks for signals now and then; what is raised here ends it."""
    if _Watch.armed:
        _Watch.armed = False
        raise PartAbstained(f"its expressions took more than {LONGEST:g} s on one group")


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Breaks off what takes longer than `LONGEST`; only on the main thread, as signals do.

    Raises:
        PartAbstained: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _Watch.set:
        signal.signal(signal.SIGVTALRM, _ring)
        _Watch.set = True
    _Watch.armed = True
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        yield
    finally:
        _Watch.armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def pattern(text: Any, field: str, flags: int = 0) -> Pattern:
    """A checked expression.

    Raises:
        SettingError: it is none, or may take exponential time.
    """
    if not isinstance(text, str):
        raise SettingError(field, f"`{text!r:.40}` is no regular expression", "Give a text")
    try:
        tree = parser.parse(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingError(
            field, f"`{text:.60}` is no regular expression: {error}", "Correct it, or quote it"
        ) from error
    if _endless(tree, False):
        raise SettingError(
            field,
            f"`{text:.60}` can take for ever on the wrong text",
            "Repeat no repeat and no choice, as (a+)+ does. Possessive ones, a++, are safe",
        )
    return Pattern(text, flags)


def _endless(tree: Any, inside: bool) -> bool:
    """Whether an endless repeat, or a choice, stands in an endless repeat."""
    for kind, given in tree:
        if kind in _REPEATS:
            low, high, inner = given
            far = high == sre.MAXREPEAT or high > _MANY
            if inside and low != high:
                return True
            if _endless(inner, inside or far):
                return True
        elif (inside and kind is sre.BRANCH) or any(
            _endless(inner, inside) for inner in _inner(kind, given)
        ):
            return True
    return False


def _inner(kind: Any, given: Any) -> list[Any]:
    """The expressions within one that is no repeat that can go back."""
    if kind is sre.SUBPATTERN:
        return [given[-1]]
    if kind is sre.BRANCH:
        return list(given[1])
    if kind in (sre.ASSERT, sre.ASSERT_NOT):
        return [given[1]]
    if kind is sre.GROUPREF_EXISTS:
        return [one for one in given[1:] if one is not None]
    if kind is sre.ATOMIC_GROUP:
        return [given]
    if kind is sre.POSSESSIVE_REPEAT:
        return [given[2]]
    return []
