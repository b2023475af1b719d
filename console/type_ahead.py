"""Keys typed ahead of the screen: each is handed on when the one before it has had its effect.

Textual gives a burst of keys, as a slow line delivers it, to what had the focus when it came in:
a screen that the first of them opened would never see the rest.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from textual import events
from textual.dom import DOMNode
from textual.timer import Timer

from console.screens.base import ConsoleScreen
from console.session import EVERYTHING

if TYPE_CHECKING:
    from console.app import ConsoleApp

PATIENCE = 1.0
"""Seconds after which the next key goes on, whatever became of the one before."""
TURNS = 4
"""Turns of the event loop in which a question that a key asks for comes up."""
LOOKS = 40
"""Refreshes that a new screen is waited for."""


class TypeAhead:
    """The keys that wait for the one that is being carried out."""

    def __init__(self, app: "ConsoleApp", hand_on: Callable[[events.Key], Awaitable[None]]) -> None:
        self._app = app
        self._hand_on = hand_on
        self._waiting: deque[events.Key] = deque()
        self._number = 0
        self._busy = False
        self._limit: Timer | None = None

    async def take(self, key: events.Key) -> None:
        """Hand a key on now, or when those before it are through."""
        if self._busy:
            self._waiting.append(key)
        else:
            await self._go(key)

    async def _go(self, key: events.Key) -> None:
        self._busy = True
        self._number += 1
        number = self._number
        target: DOMNode = self._app.focused or self._app.screen
        shown = self._app.screen
        await self._hand_on(key)
        self._limit = self._app.set_timer(PATIENCE, lambda: self._next(number))
        self._follow(target, number, shown)

    def _follow(self, node: DOMNode, number: int, shown: object) -> None:
        """Go the key's own way: through the queue of each that it bubbles to, up to the app."""
        if node is self._app:
            self._app.call_later(self._done, number, shown)
            return
        above = node.parent or self._app
        if not node.call_later(self._follow, above, number, shown):
            self._app.call_later(self._done, number, shown)  # it is gone, and the key with it

    async def _done(self, number: int, shown: object) -> None:
        """The key was dealt with; a screen or question it opened must be there before the next."""
        if not self._waiting:
            await self._next(number)
            return
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if self._app.screen is shown:
            await self._next(number)
        else:
            self._look(number, LOOKS)

    def _look(self, number: int, left: int) -> None:
        screen = self._app.screen
        if not screen.is_mounted and left:
            self._app.call_later(self._look, number, left - 1)
            return
        screen.call_after_refresh(self._painted, number)

    async def _painted(self, number: int) -> None:
        screen = self._app.screen
        if isinstance(screen, ConsoleScreen):
            self._app.flush_screen(screen, EVERYTHING)
        self._app.call_later(self._next, number)

    async def _next(self, number: int) -> None:
        """Hand the next key on, once for each key before it."""
        if number != self._number or not self._busy:
            return
        if self._limit is not None:
            self._limit.stop()
        self._busy = False
        if self._waiting:
            await self._go(self._waiting.popleft())
