"""Queue for keys typed ahead: each key is handled after the one before it has taken effect.

Textual delivers a burst of keys, as it arrives over a slow line, to the widget that had the focus
when the burst arrived. A screen or a field opened by the first key would never get the others.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from console.screens.base import ConsoleScreen
from console.session.app_state import EVERYTHING, Session

Typed = events.Key | events.Paste
"""A keyboard event."""
Flush = Callable[[ConsoleScreen, frozenset[str]], None]
TICK = 0.25
"""Seconds between two checks of a key that takes long."""
TICKS = 40
"""Number of checks after which the next key is handled in any case. Checks are counted rather than
seconds, so that a suspended machine does not send keys to the wrong widget."""
TURNS = 4
"""Turns of the event loop in which a dialog opened by a key appears."""
RETRIES = 40
"""Number of event loop turns to wait for a new screen."""
ROUNDS = 2
"""Number of passes from the focused widget up to the app in which the focus must not change. Enter
in a field notifies the line around it, that line notifies the screen, and the screen moves the
focus back to the list."""


class KeyQueue:
    """The keys that wait until the current one has taken effect.

    Args:
        app: The app.
        handle: Handles a key as the app does without this queue.
        session: Is given the time at which the key that is handled arrived.
        flush: Repaints a screen.
    """

    def __init__(
        self,
        app: App[Any],
        handle: Callable[[Typed], Awaitable[None]],
        flush: Flush,
        session: Session,
    ) -> None:
        self._app = app
        self._flush = flush
        self._handle = handle
        self._session = session
        self._waiting: deque[tuple[Typed, float]] = deque()
        """Keys with the time when they arrived."""
        self._number = 0
        self._busy = False
        self._ticks = 0
        self._watch: Timer | None = None
        self._awaited: Screen[object] | None = None
        self._opening = 0
        self._deferred: Callable[[], Awaitable[None]] | None = None

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Delay the next key while a dialog is about to open, as after an answer to another one."""
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1
            if not self._opening and self._deferred is not None:
                self._app.call_later(self._deferred)
                self._deferred = None

    @property
    def idle(self) -> bool:
        """Whether all keys have taken effect."""
        return not self._busy

    async def put(self, key: Typed) -> None:
        """Handle a key now, or after the keys before it."""
        if self._busy:
            self._waiting.append((key, self._session.now()))
        elif self._app.screen_stack:
            await self._start(key, self._session.now())

    async def _start(self, key: Typed, at: float) -> None:
        app = self._app
        self._busy = True
        self._number += 1
        number = self._number
        _give_focus(app.screen)
        target: DOMNode = app.focused or app.screen
        shown, focus = app.screen, app.focused
        self._session.input_at = at
        await self._handle(key)
        self._ticks, self._awaited = 0, None
        self._watch = app.set_interval(TICK, partial(self._tick, number))
        self._follow(target, partial(self._handled, number, shown, focus))

    def _follow(self, node: DOMNode, then: Callable[[], Awaitable[None]]) -> None:
        """Follow the key's path through the message queues of the nodes it bubbles to."""
        if node is self._app:
            self._app.call_later(then)
            return
        above = node.parent or self._app
        if not node.call_later(self._follow, above, then):
            self._app.call_later(then)  # the node was removed, and its messages with it

    async def _handled(self, number: int, shown: Screen[object], focus: Widget | None) -> None:
        """After the key was handled, wait for a screen or dialog that it opened."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        # The app changes the focus in a later turn, so check it after that turn.
        self._app.call_later(self._settle, number, shown, focus, ROUNDS)

    async def _settle(
        self, number: int, shown: Screen[object], focus: Widget | None, left: int
    ) -> None:
        """Handle the next key once the focus no longer moves."""
        if self._is_finished(number):
            return
        if self._opening:
            self._deferred = partial(self._settle, number, shown, focus, ROUNDS)
            return
        screen, now = self._app.screen, self._app.focused
        if screen is not shown:
            self._await_screen(number, RETRIES)
            return
        left = left if now is focus else ROUNDS
        if left and self._waiting:
            self._follow(now or screen, partial(self._settle, number, screen, now, left - 1))
        else:
            await self._next(number)

    def _await_screen(self, number: int, left: int) -> None:
        if self._is_finished(number):
            return
        screen = self._awaited = self._app.screen
        if not screen.is_mounted and left:
            self._app.call_later(self._await_screen, number, left - 1)
            return
        screen.call_after_refresh(self._painted, number)

    async def _painted(self, number: int) -> None:
        if self._is_finished(number):
            return
        screen = self._app.screen
        if screen is not self._awaited:
            self._await_screen(number, RETRIES)
            return
        self._awaited = None
        if self._waiting and isinstance(screen, ConsoleScreen):
            self._flush(screen, EVERYTHING)
        self._app.call_later(self._settle, number, screen, self._app.focused, ROUNDS)

    async def _tick(self, number: int) -> None:
        """Check a key that takes long: the screen it opened may be closed again, unpainted."""
        self._ticks += 1
        if self._ticks >= TICKS:
            await self._next(number)
        elif self._awaited is not None and self._awaited is not self._app.screen:
            self._await_screen(number, RETRIES)

    def _is_finished(self, number: int) -> bool:
        """Return whether the queue no longer waits for this key, or the console is closing."""
        return number != self._number or not self._busy or not self._app.screen_stack

    async def _next(self, number: int) -> None:
        """Finish the key of this number and handle the next one; do nothing the second time."""
        if self._is_finished(number):
            return
        if self._watch is not None:
            self._watch.stop()
        self._busy = False
        if self._waiting:
            await self._start(*self._waiting.popleft())


def _give_focus(screen: Screen[object]) -> None:
    """Give the focus to the widget whose keys a screen needs, when nothing has it."""
    if isinstance(screen, ConsoleScreen) and screen.keeps_focus and screen.focused is None:
        parts = screen.query(screen.AUTO_FOCUS or "*")
        screen.set_focus(next((part for part in parts if part.focusable), None))
