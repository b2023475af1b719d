"""Queue of the mock user's events, posted to the proxy in order and across its restarts."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from core.events import Event
from mock.control import Control, ControlRefused, retried

log = logging.getLogger("mock")

_MAX_QUEUED = 500


class FactQueue:
    """A queue of events for the control API.

    Args:
        control: The control API; without one, nothing is posted.
    """

    def __init__(self, control: Control | None) -> None:
        self._control = control
        self._facts: asyncio.Queue[tuple[str, Event]] = asyncio.Queue(_MAX_QUEUED)

    async def put(self, fact_id: str, event: Event) -> None:
        """Queue an event; waits while the queue is full."""
        if self._control is not None:
            await self._facts.put((fact_id, event))

    async def post_now(
        self,
        fact_id: str,
        event: Event,
        patience: float,
        rest: Callable[[float], Awaitable[bool]],
    ) -> None:
        """Post an event immediately, with retries for `patience` seconds; raise when that fails."""
        if (control := self._control) is not None:
            await retried(lambda: control.post_fact(fact_id, event), rest, patience)

    async def run(self) -> None:
        """Post the queued events until cancelled; each is retried until it is accepted or
        refused."""
        while True:
            fact_id, event = await self._facts.get()
            try:
                await self.post_now(fact_id, event, math.inf, _sleep)
            except ControlRefused as error:
                log.warning("the proxy refused an event: %s", error)
            self._facts.task_done()

    async def close(self, fact_id: str, event: Event, seconds: float) -> None:
        """Post a last event and everything queued before it, within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.put(fact_id, event)
                await self._facts.join()
        except TimeoutError:
            log.warning("the proxy does not respond: %d events are lost", self._facts.qsize())


async def _sleep(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return False
