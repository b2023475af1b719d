"""One try of a group to get what it misses: all claims together, without a task of its own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from swarm.answers import Claimed, Refused, RefusedKind
from swarm.calls import Call, listen_to
from swarm.orders import Order
from swarm.seam import Response

log = logging.getLogger(__name__)


class Attempt:
    """Hears the answers of claims; whoever waits for it may be cancelled, it goes on to its end.

    Args:
        order: What is wanted.
        note: Called with each answer.
        give_back: Returns what the order holds: a claim was refused, or nobody wants it any more.
        spawn: Starts what takes time.
        finished: Called once all claims are answered and nothing is on its way back.
        over: Made done after `finished`.
    """

    def __init__(
        self,
        order: Order,
        *,
        note: Callable[[Order, Claimed | Refused], None],
        give_back: Callable[[Order], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
        finished: Callable[[], None],
        over: "asyncio.Future[None]",
    ) -> None:
        self.over = over
        self._order = order
        self._note = note
        self._give_back = give_back
        self._spawn = spawn
        self._finished = finished
        self._calls: Sequence[Call[Claimed | Refused]] = ()
        self._left = 0
        self._ended = False
        self._abandoned = False
        self._waiting: asyncio.Future[None] | None = None
        self._others: list[asyncio.Task[None]] = []
        """Claims that take a new connection, and what is on its way back."""

    def begin(
        self,
        calls: Sequence[Call[Claimed | Refused]],
        others: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> None:
        """Hear these calls, and run what stands for the claims that could not be begun so."""
        self._calls, self._left = calls, len(calls)
        self._others.extend([self._spawn(work, "claim") for work in others])
        if calls:
            listen_to(calls, self._heard)
        else:
            self._end()

    @property
    def running(self) -> bool:
        """Not all claims are answered, or something is on its way back."""
        return not self._ended

    async def end(self) -> None:
        """Wait for its end, also when nobody waits for `over`; for one who waits.

        Cancelled, it closes the connections of the claims: nobody will hear the answers.
        """
        if self._ended:
            return
        self._waiting = self.over.get_loop().create_future()
        try:
            await self._waiting
        except asyncio.CancelledError:
            self._abandoned = True
            for call in self._calls:
                call.cancel()
            raise

    def _heard(self, index: int, _: "asyncio.Future[Response]") -> None:
        if self._abandoned:
            return
        self._left -= 1
        try:
            self._note(self._order, self._calls[index].result())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the rest is heard
            self._broken(error)
        if self._order.stop is not None and self._order.held:
            self._others.append(self._spawn(self._give_back(self._order), "give back"))
        if not self._left:
            self._end()

    def _end(self) -> None:
        if self._others:
            self._spawn(self._wind_up(), "claim")
        else:
            self._done()

    async def _wind_up(self) -> None:
        try:
            while self._others:
                try:
                    await self._others.pop()
                except Exception as error:  # noqa: BLE001  as of an answer; the others go on
                    self._broken(error)
        finally:
            self._done()

    def _done(self) -> None:
        self._ended = True
        self._finished()
        for one in (self.over, self._waiting):
            if one is not None and not one.done():
                one.set_result(None)

    def _broken(self, error: BaseException) -> None:
        log.error("a claim failed in a way nobody foresaw", exc_info=error)
        if isinstance(error, Exception):
            self._order.error = self._order.error or error
        self._order.stop = self._order.stop or Refused(RefusedKind.OTHER, "it failed")
