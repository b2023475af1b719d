"""Queue of the mock user's events, posted to the proxy in order and across its restarts."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from core.events import Event
from mock.control import Control, ControlDown, ControlRefused

log = logging.getLogger("mock")

BACK_OFF = 5.0
_MAX_QUEUED = 500


class FactQueue:
    """A queue of events for the control API.

    Args:
        control: The control API.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._facts: asyncio.Queue[tuple[str, Event]] = asyncio.Queue(_MAX_QUEUED)

    async def put(self, fact_id: str, event: Event) -> None:
        """Queue an event; waits while the queue is full."""
        await self._facts.put((fact_id, event))

    async def post_now(
        self,
        fact_id: str,
        event: Event,
        patience: float,
        rest: Callable[[float], Awaitable[bool]],
    ) -> None:
        """Post an event immediately, with retries for `patience` seconds; raise when that fails."""
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
        """Post the queued events until cancelled; each is retried until it is accepted or
        refused."""
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
                    log.warning("the proxy refused an event: %s", error)
                break
            self._facts.task_done()

    async def close(self, fact_id: str, event: Event, seconds: float) -> None:
        """Post a last event and everything queued before it, within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.put(fact_id, event)
                await self._facts.join()
        except TimeoutError:
            log.warning("the proxy does not respond: %d events are lost", self._facts.qsize())
