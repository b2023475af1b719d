"""Regular expressions that cannot block the proxy.

An expression of the operator is matched against any text that a model writes. Expressions that can
take exponential time are refused when they are read, only both ends of a text are searched, and a
match that still takes too long is aborted.

The library `regex` is no replacement: its timeout counts the processor time of all threads and
limits one match, not a group; its syntax reads `a{e}` as a fuzzy match; and it cannot detect in
advance that an expression takes exponential time.
"""

import contextlib
import gc
import re
import re._constants as sre  # type: ignore[import-not-found]  # the parsed form has no public name
import re._parser as parser  # type: ignore[import-not-found]  # the same
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from proxy.rewards.part import PartAbstained, SettingError

MAX_SEARCHED = 8_000
"""Maximum number of characters that are searched: half at the start of a text, half at its end."""

MAX_SECONDS = 0.2
"""Seconds of processor time that the expressions of a part may take for one group."""

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
_MANY = 64
"""More repeats than this count as unlimited."""


class Pattern:
    """A compiled expression."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self.text = text
        self._search = re.compile(text, flags).search

    def matches(self, text: str) -> bool:
        """Return whether it matches somewhere at either end of `text`."""
        if len(text) <= MAX_SEARCHED:
            return self._search(text) is not None
        half = MAX_SEARCHED // 2
        return self._search(text[:half]) is not None or self._search(text[-half:]) is not None


class _Timer:
    """State of the timer that aborts a match."""

    armed = False
    set = False


_AGAIN_SECONDS = 0.01
"""Seconds of processor time after which the timer fires again."""

_PACKAGE = __name__.rpartition(".")[0] + "."


def _abort(number: int, frame: FrameType | None) -> None:
    """Abort the match by an exception; matching checks for signals regularly.

    A signal that interrupts a finalizer or the callback of a weak reference is ignored: Python
    swallows their exceptions. The timer fires again until the block has ended.
    """
    interrupted = "" if frame is None else frame.f_globals.get("__name__", "")
    if _Timer.armed and interrupted.startswith(_PACKAGE):
        _Timer.armed = False
        raise PartAbstained(f"its expressions took more than {MAX_SECONDS:g} s on one group")


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Abort the block after `MAX_SECONDS` seconds; only on the main thread, which gets the signals.

    The garbage collector is paused meanwhile: on a large heap one collection alone takes longer.

    Raises:
        PartAbstained: The block took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _Timer.set:
        signal.signal(signal.SIGVTALRM, _abort)
        _Timer.set = True
    collects = gc.isenabled()
    gc.disable()
    _Timer.armed = True
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS, _AGAIN_SECONDS)
    try:
        yield
    finally:
        _Timer.armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collects:
            gc.enable()


def pattern(text: Any, field: str, flags: int = 0) -> Pattern:
    """Return a checked expression.

    Raises:
        SettingError: It is not an expression, or may take exponential time.
    """
    if not isinstance(text, str):
        raise SettingError(field, f"`{text!r:.40}` is not a regular expression", "Give a text")
    try:
        tree = parser.parse(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingError(
            field, f"`{text:.60}` is not a regular expression: {error}", "Correct it, or quote it"
        ) from error
    if _is_exponential(tree, False):
        raise SettingError(
            field,
            f"`{text:.60}` can take forever on some texts",
            "Repeat no repeat and no choice, as (a+)+ does. Possessive ones, a++, are safe",
        )
    return Pattern(text, flags)


def _is_exponential(tree: Any, inside: bool) -> bool:
    """Return whether an unlimited repeat contains an unlimited repeat or a choice."""
    for kind, argument in tree:
        if kind in _REPEATS:
            low, high, inner = argument
            unlimited = high == sre.MAXREPEAT or high > _MANY
            if inside and low != high:
                return True
            if _is_exponential(inner, inside or unlimited):
                return True
        elif (inside and kind is sre.BRANCH) or any(
            _is_exponential(inner, inside) for inner in _INNER.get(kind, _none)(argument)
        ):
            return True
    return False


def _none(argument: Any) -> list[Any]:
    return []


_INNER: Mapping[Any, Callable[[Any], list[Any]]] = {
    sre.SUBPATTERN: lambda argument: [argument[-1]],
    sre.BRANCH: lambda argument: list(argument[1]),
    sre.ASSERT: lambda argument: [argument[1]],
    sre.ASSERT_NOT: lambda argument: [argument[1]],
    sre.GROUPREF_EXISTS: lambda argument: [*filter(None, argument[1:])],
    sre.ATOMIC_GROUP: lambda argument: [argument],
    sre.POSSESSIVE_REPEAT: lambda argument: [argument[2]],
}
"""Kind of an expression that is not a backtracking repeat -> the expressions inside it."""
