"""One try to get what groups miss: all claims together, without a task of its own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from swarm.answers import Claimed, Refused
from swarm.calls import Call, listen_to
from swarm.errors import SwarmError
from swarm.flight import Flight
from swarm.orders import Order
from swarm.seam import Response

log = logging.getLogger(__name__)


class Attempt:
    """Hears the answers of claims; whoever waits for it may be cancelled, it goes on to its end.

    Args:
        flight: What is wanted, and who gets it.
        serve: Called with each order but the first, as soon as it is complete.
        give_back: Returns what an order holds: a claim was refused, or nobody wants it any more.
        spawn: Starts what takes time.
        finished: Called once all claims are answered and nothing is on its way back.
        over: Made done once the first order is complete, else after `finished`.
    """

    def __init__(
        self,
        flight: Flight,
        *,
        serve: Callable[[Order], None],
        give_back: Callable[[Order], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
        finished: Callable[[], None],
        over: "asyncio.Future[None]",
    ) -> None:
        self.over = over
        self.flight = flight
        self._serve = serve
        self._give_back = give_back
        self._spawn = spawn
        self._finished = finished
        self._calls: Sequence[Call[Claimed | Refused]] = ()
        self._left = 0
        self._ended = False
        self._abandoned = False
        self._waiting: asyncio.Future[None] | None = None
        self._others: list[asyncio.Task[None]] = []
        """Claims that take a new connection."""
        self._back: list[asyncio.Task[None]] = []
        """What is on its way back."""

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
        if self._waiting is None:
            self._waiting = self.over.get_loop().create_future()
        try:
            await asyncio.shield(self._waiting)
        except asyncio.CancelledError:
            self._abandoned = True
            for call in self._calls:
                call.cancel()
            if not self._ended:
                self.flight.fail_others(SwarmError("claims were given up: the desk was closed"))
                self._done()
            raise

    def _heard(self, index: int, _: "asyncio.Future[Response]") -> None:
        if self._abandoned:
            return
        self._left -= 1
        try:
            answer = self._calls[index].result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the rest is heard
            self._broken(error)
            self._give_up()
        else:
            self.answered(answer)
        if not self._left:
            self._end()

    def answered(self, answer: Claimed | Refused) -> None:
        """A claim was answered: who is complete goes on, who cannot be gives back."""
        done = self.flight.answered(answer)
        if done is self.flight.orders[0]:
            if self.flight.left and not self.over.done():
                self.over.set_result(None)
                self._spawn(self.end(), "claims on their way")
        elif done is not None:
            self._serve(done)
        self._give_up()

    def stop(self, why: Refused) -> None:
        """Nobody who is not complete will be: what they hold goes back."""
        self.flight.stop_all(why)
        self._give_up()

    def _give_up(self) -> None:
        for order in self.flight.loose():
            self._back.append(self._spawn(self._give_back(order), "give back"))

    def _end(self) -> None:
        if self._others or self._back:
            self._spawn(self._wind_up(), "claim")
        else:
            self._done()

    async def _wind_up(self) -> None:
        try:
            while self._others or self._back:
                claim = bool(self._others)
                try:
                    await (self._others or self._back).pop()
                except Exception as error:  # noqa: BLE001  as of an answer; the others go on
                    if claim:  # what goes wrong on the way back is logged, and swept later
                        self._broken(error)
                        self._give_up()
        finally:
            self._done()

    def _done(self) -> None:
        self._ended = True
        finished, self._finished = self._finished, _nothing  # what it knows knows this
        try:
            finished()
        finally:
            for one in (self.over, self._waiting):
                if one is not None and not one.done():
                    one.set_result(None)

    def _broken(self, error: BaseException) -> None:
        log.error("a claim failed in a way nobody foresaw", exc_info=error)
        self.flight.broken(error if isinstance(error, Exception) else None)


def _nothing() -> None:
    """Has been called."""
