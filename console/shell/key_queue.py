"""Keys typed ahead of the screen: each is handed on when the one before it has had its effect.

Textual gives a burst of keys, as a slow line delivers it, to what had the focus when it came in:
a screen or a field that the first of them opened would never see the rest.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from console.screens.base import ConsoleScreen
from console.session.app_state import EVERYTHING

Typed = events.Key | events.Paste
"""What comes from the keyboard."""
Flush = Callable[[ConsoleScreen, frozenset[str]], None]
TICK = 0.25
"""Seconds between two looks at a key that takes long."""
TICKS = 40
"""Looks after which the next key goes on, whatever became of the one before. They are counted
instead of the time: a machine that stands still for a while must not make keys go astray."""
TURNS = 4
"""Turns of the event loop in which a question that a key asks for comes up."""
LOOKS = 40
"""Refreshes that a new screen is waited for."""
ROUNDS = 2
"""Ways from the focus up to the app without another focus: Enter in a field says so to the line
around it, and that to the screen, which gives the focus back to the list."""


class KeyQueue:
    """The keys that wait for the one that is being carried out.

    Args:
        app: The app.
        hand_on: Handles a key as the app does without this class.
        flush: Repaints a screen.
    """

    def __init__(
        self, app: App[Any], hand_on: Callable[[Typed], Awaitable[None]], flush: Flush
    ) -> None:
        self._app = app
        self._flush = flush
        self._hand_on = hand_on
        self._waiting: deque[Typed] = deque()
        self._number = 0
        self._busy = False
        self._ticks = 0
        self._watch: Timer | None = None
        self._awaited: Screen[object] | None = None

    @property
    def idle(self) -> bool:
        """Every key that came in has had its effect."""
        return not self._busy

    async def take(self, key: Typed) -> None:
        """Hand a key on now, or when those before it are through."""
        if self._busy:
            self._waiting.append(key)
        elif self._app.screen_stack:
            await self._go(key)

    async def _go(self, key: Typed) -> None:
        app = self._app
        self._busy = True
        self._number += 1
        number = self._number
        target: DOMNode = app.focused or app.screen
        shown, focus = app.screen, app.focused
        await self._hand_on(key)
        self._ticks, self._awaited = 0, None
        self._watch = app.set_interval(TICK, partial(self._tick, number))
        self._follow(target, partial(self._done, number, shown, focus))

    def _follow(self, node: DOMNode, then: Callable[[], Awaitable[None]]) -> None:
        """Go the key's own way: through the queue of each that it bubbles to, up to the app."""
        if node is self._app:
            self._app.call_later(then)
            return
        above = node.parent or self._app
        if not node.call_later(self._follow, above, then):
            self._app.call_later(then)  # it is gone, and the key with it

    async def _done(self, number: int, shown: Screen[object], focus: Widget | None) -> None:
        """The key was dealt with; a screen or question it opened must be there before the next."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        # The focus is given in a turn of the app's own: behind this one, if this key asked for it.
        self._app.call_later(self._settle, number, shown, focus, ROUNDS)

    async def _settle(
        self, number: int, shown: Screen[object], focus: Widget | None, left: int
    ) -> None:
        """The next key goes to what has the focus: only when that stays where it is."""
        if self._over(number):
            return
        screen, now = self._app.screen, self._app.focused
        if screen is not shown:
            self._look(number, LOOKS)
            return
        left = left if now is focus else ROUNDS
        if left and self._waiting:
            self._follow(now or screen, partial(self._settle, number, screen, now, left - 1))
        else:
            await self._next(number)

    def _look(self, number: int, left: int) -> None:
        if self._over(number):
            return
        screen = self._awaited = self._app.screen
        if not screen.is_mounted and left:
            self._app.call_later(self._look, number, left - 1)
            return
        screen.call_after_refresh(self._painted, number)

    async def _painted(self, number: int) -> None:
        if self._over(number):
            return
        screen = self._app.screen
        if screen is not self._awaited:
            self._look(number, LOOKS)
            return
        self._awaited = None
        if self._waiting and isinstance(screen, ConsoleScreen):
            self._flush(screen, EVERYTHING)
        self._app.call_later(self._settle, number, screen, self._app.focused, ROUNDS)

    async def _tick(self, number: int) -> None:
        """The key takes long: the screen it opened may be gone again, unpainted."""
        self._ticks += 1
        if self._ticks >= TICKS:
            await self._next(number)
        elif self._awaited is not None and self._awaited is not self._app.screen:
            self._look(number, LOOKS)

    def _over(self, number: int) -> bool:
        """Whether the key of this number is waited for no more, or the console is being left."""
        return number != self._number or not self._busy or not self._app.screen_stack

    async def _next(self, number: int) -> None:
        """Hand the next key on, once for each key before it."""
        if self._over(number):
            return
        if self._watch is not None:
            self._watch.stop()
        self._busy = False
        if self._waiting:
            await self._go(self._waiting.popleft())
