"""The mock user's facts, posted to the proxy in their order, through its restarts."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from core.events import Event
from mock.control import Control, ControlDown, ControlRefused

log = logging.getLogger("mock")

BACK_OFF = 5.0
_WAITING = 500


class Telling:
    """A queue of facts for the control API.

    Args:
        control: Where they go.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._facts: asyncio.Queue[tuple[str, Event]] = asyncio.Queue(_WAITING)

    async def put(self, fact_id: str, event: Event) -> None:
        """Post it in its turn; waits while too many wait."""
        await self._facts.put((fact_id, event))

    async def now(
        self,
        fact_id: str,
        event: Event,
        patience: float,
        rest: Callable[[float], Awaitable[bool]],
    ) -> None:
        """Post it before anything else happens; raises when that is not possible."""
        deadline = time.monotonic() + patience
        delay = 0.1
        while True:
            try:
                await self._control.post_fact(fact_id, event)
                return
            except ControlDown:
                if time.monotonic() + delay > deadline or await rest(delay):
                    raise
                delay = min(delay * 2, BACK_OFF)

    async def run(self) -> None:
        """Post each until it is taken or refused; for ever."""
        while True:
            fact_id, event = await self._facts.get()
            delay = 0.1
            while True:
                try:
                    await self._control.post_fact(fact_id, event)
                except ControlDown:
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, BACK_OFF)
                    continue
                except ControlRefused as error:
                    log.warning("a fact was refused: %s", error)
                break
            self._facts.task_done()

    async def close(self, fact_id: str, event: Event, seconds: float) -> None:
        """A last fact, and all before it."""
        try:
            async with asyncio.timeout(seconds):
                await self.put(fact_id, event)
                await self._facts.join()
        except TimeoutError:
            log.warning("the proxy does not answer: %d facts are lost", self._facts.qsize())
