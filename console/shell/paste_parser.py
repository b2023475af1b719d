"""Parser of the terminal's input in which a paste ends after a limit of time.

Textual's own parser waits for the mark at the end of a paste for ever. If the mark comes in two
pieces over a slow line, or never, it swallows all keys, that to quit included.
"""

import time
from collections.abc import Callable, Iterable

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message

LIMIT = 2.0
"""Seconds without pasted text after which a paste ends. A single character is a key, not pasted
text, so that keys do not keep a paste without an end open."""


class PasteParser(XTermParser):
    """Collects each paste itself, and passes everything else on.

    Args:
        debug: As for `XTermParser`.
        clock: Returns seconds that never go back.
    """

    def __init__(self, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(debug)
        self._clock = clock
        self._pasted: str | None = None
        """Text of the present paste; None outside of one."""
        self._until = 0.0
        self._tail = ""
        """End of what was passed on, which may be the first piece of a start mark."""
        self._late = ""
        """The rest of an end mark whose first piece was dropped at the limit."""

    def feed(self, data: str) -> Iterable[Message]:
        """Return the events of some input."""
        if not data:  # the end of the input
            yield from super().feed(data)
            return
        while data and data[0] == self._late[:1]:
            data, self._late = data[1:], self._late[1:]
        self._late = "" if data else self._late
        while data:
            if self._pasted is None:
                before, start, after = (self._tail + data).partition(BRACKETED_PASTE_START)
                torn = len(self._tail) - len(before)
                if start and torn > 0:  # the base has the first piece: end the paste that it begins
                    for message in super().feed(start[torn:] + BRACKETED_PASTE_END):
                        if not isinstance(message, events.Paste):
                            yield message
                elif before := before[len(self._tail) :]:
                    yield from super().feed(before)
                self._tail = "" if start else (self._tail + data)[1 - len(BRACKETED_PASTE_START) :]
                if not start:
                    return
                data = after
                self._pasted, self._until = "", self._clock() + LIMIT
            if len(data) > 1:
                self._until = self._clock() + LIMIT
            text, end, rest = (self._pasted + data).partition(BRACKETED_PASTE_END)
            if not end:
                self._pasted = text
                return
            self._pasted, data = None, rest
            yield _paste(text)

    def tick(self) -> Iterable[Message]:
        """Return the events of timeouts; called at regular intervals."""
        waits = self._timeout_time is not None
        yield from super().tick()
        if waits and self._timeout_time is None:  # the first piece of a sequence became keys
            self._tail = ""
        if self._pasted is None or self._clock() < self._until:
            return
        text, self._pasted = self._pasted, None
        for size in range(len(BRACKETED_PASTE_END) - 1, 0, -1):
            if text.endswith(BRACKETED_PASTE_END[:size]):
                text, self._late = text[:-size], BRACKETED_PASTE_END[size:]
                break
        yield _paste(text)


def _paste(text: str) -> events.Paste:
    return events.Paste(text.replace("\x00", ""))
