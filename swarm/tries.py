"""How the claim desk tries to get what groups want: all or nothing, one turn at a time."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from swarm.answers import Claimed, Refused, RefusedKind
from swarm.attempt import Attempt
from swarm.calls import Call
from swarm.client import AsyncSwarmClient
from swarm.flight import MOST, Flight
from swarm.line import Line
from swarm.orders import Order
from swarm.returns import Returns
from swarm.schemas import EngineState
from swarm.watcher import Seen, Watcher

log = logging.getLogger(__name__)

PACE = (0.003, 0.01)
"""Seconds between two claims of a group that gathers."""


class Tries(Returns):
    """Claims for the groups of one server; whose turn it is the desk decides.

    Args: as of `ClaimDesk`.
    """

    def __init__(
        self,
        client: AsyncSwarmClient,
        watcher: Watcher,
        *,
        known: Callable[[], Collection[str]],
        on_stray: Callable[[Sequence[str]], None] | None,
        timeout: float,
        second_look: float,
        rng: random.Random,
    ) -> None:
        super().__init__(
            client,
            watcher,
            known=known,
            on_stray=on_stray,
            timeout=timeout,
            second_look=second_look,
        )
        self._rng = rng
        self._runs_on: asyncio.AbstractEventLoop | None = None
        self._line = Line()
        """One group has its turn: it tries and waits; the others queue."""
        self._together = 1
        """Groups that one turn may claim for: more while all are granted, one after a refusal."""
        self._gathering: Order | None = None
        """What the group that has its turn holds, while it keeps a part."""

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Asked for once: asyncio's own look-up costs a call to the system each time."""
        if self._runs_on is None:
            self._runs_on = asyncio.get_running_loop()
        return self._runs_on

    def _turn_over(self, order: Order) -> None:
        """The order's turn ends, where it has it."""
        if order.in_turn:
            order.in_turn = False
            self._line.release()

    async def _attempt(self, order: Order, probe: bool, window: float = 0.0) -> Refused | None:
        """Try once; None when `order.held` is complete. Cancelled, it leaves nothing held.

        It is over when nothing is on its way back: the next try may be given the same uuids.
        """
        attempt: Attempt | None = None
        try:
            if probe or window:
                claims = self._gather(order, window) if window else self._probe(order)
                await asyncio.shield(self._tasks.spawn(claims, "claim"))
            else:
                await self._hands.acquire()
                attempt = self._rest(order)
                await attempt.over
            if order.back:
                await asyncio.wait(order.back)
                order.back.clear()
        except asyncio.CancelledError:
            order.cut = not order.stopped()
            self._give_up(order, Refused(RefusedKind.OTHER, "cancelled"))
            if attempt is not None and attempt.running:
                self._tasks.spawn(attempt.end(), "claims on their way")
            raise
        if order.error is not None:
            self._give_up(order, Refused(RefusedKind.OTHER, "it failed"))
            raise order.error
        return order.stop

    async def _probe(self, order: Order) -> None:
        """After a refusal one claim goes ahead to see if any is free."""
        await self._hands.acquire()
        remove = self.watcher.add_listener(lambda seen: self._on_change(order, seen))
        try:
            await self._claim_one(order)
        except BaseException:
            self._hands.release()
            raise
        finally:
            remove()
        await self._rest(order).end()

    def _rest(self, order: Order) -> Attempt:
        """All claims that are missing, together; with the hands, which it frees.

        Where all were granted lately, also those of the groups next in the line. A group goes on
        with the last episode of its own, and its turn is then over.

        Returns:
            What goes on in the background, also when nobody waits for it.
        """
        alongside: list[Order] = []
        if order.in_turn and not order.tried:
            alongside = self._line.along(order, self._together - 1)
        flight = Flight([order, *alongside], took=self._took, refused=self._heed)

        def left_rolling(seen: Seen) -> None:
            if _not_rolling(seen):
                attempt.stop(Refused(RefusedKind.NOT_ROLLING, seen.raw))

        remove = self.watcher.add_listener(left_rolling)

        def finished() -> None:
            remove()
            self._hands.release()
            self._land(flight)
            if not order.stopped():
                self._turn_over(order)

        attempt = Attempt(
            flight,
            over=self._loop.create_future(),
            serve=self._line.serve,
            give_back=self._return_held,
            spawn=self._tasks.spawn,
            finished=finished,
        )
        calls: list[Call[Claimed | Refused]] = []
        others: list[Coroutine[Any, Any, None]] = []
        for _ in range(flight.left):
            call = self.client.begin_claim(
                order.episode_type, order.discard_timeout, timeout=self.timeout
            )
            if call is not None:
                calls.append(call)
            else:
                others.append(self._claim_for(attempt))
        attempt.begin(calls, others)
        return attempt

    def _land(self, flight: Flight) -> None:
        """All its claims are answered: who is not complete waits again, before all others."""
        if flight.stop is not None:
            self._together = 1
        elif flight.claims:
            self._together = min(2 * self._together, MOST)
        again = [order for order in flight.orders[1:] if self._line.waits(order)]
        for order in tuple(again):
            if order.error is not None:
                again.remove(order)
                self._line.serve(order)
            else:
                order.refused()
                order.stop, order.had = None, 0
        self._line.put_back(again)

    async def _claim_for(self, attempt: Attempt) -> None:
        """One claim that takes a new connection."""
        order = attempt.flight.orders[0]
        if not attempt.flight.wanted:
            attempt.flight.left -= 1
            return
        attempt.answered(
            await self.client.claim(order.episode_type, order.discard_timeout, timeout=self.timeout)
        )

    async def _gather(self, order: Order, seconds: float) -> None:
        """Keep what comes free for so long; what is not complete then goes back.

        Else the steady workers of another client, who take each episode the moment it is free,
        would never leave enough of them at once.
        """
        over = Refused(RefusedKind.NONE_AVAILABLE, "not enough came free")
        alarm = asyncio.get_running_loop().call_later(seconds, self._give_up, order, over)
        remove = self.watcher.add_listener(lambda seen: self._on_change(order, seen))
        order.keeps, self._gathering = True, order
        try:
            with self.watcher.eager():
                while order.had < order.n and not order.stopped():
                    before = order.had
                    async with self._hands:
                        await self._claim_one(order)
                    if order.had == before:
                        await asyncio.sleep(self._rng.uniform(*PACE))
        finally:
            alarm.cancel()
            remove()
            order.keeps, self._gathering = False, None

    def _in_hand(self) -> set[str]:
        order = self._gathering
        return {one.episode_uuid for one in order.held} if order is not None else set()

    async def _claim_one(self, order: Order) -> None:
        if order.stopped():
            return
        self._note(
            order,
            await self.client.claim(
                order.episode_type, order.discard_timeout, timeout=self.timeout
            ),
        )
        if order.stopped():
            await self._return_held(order)

    def _note(self, order: Order, answer: Claimed | Refused) -> None:
        if isinstance(answer, Claimed):
            self._took(order, answer)
            return
        self._heed(answer)
        self._together = 1
        if not (order.stopped() or order.goes_on(answer)):
            order.stop = answer

    def _took(self, order: Order, claimed: Claimed) -> None:
        order.had += 1
        order.held.append(claimed)
        # The server uses a uuid again after it was given back: it is ours anew.
        self._owed.discard(claimed.episode_uuid)
        self._returning.discard(claimed.episode_uuid)
        if order.on_claimed is not None:
            self._announce(order, order.on_claimed, claimed.episode_uuid)

    def _heed(self, refused: Refused) -> None:
        if refused.kind is RefusedKind.UNKNOWN:
            self._sweep_soon()

    def _announce(self, order: Order, tell: Callable[[str], None], uuid: str) -> None:
        try:
            tell(uuid)
        except Exception as error:  # whatever the caller's fault, no claim may be left behind
            log.exception("a claim could not be noted")
            order.error = error
            order.stop = Refused(RefusedKind.OTHER, "the claim could not be noted")

    def _on_change(self, order: Order, seen: Seen) -> None:
        """The engine left ROLLING under an incomplete group: the rest will be refused."""
        if _not_rolling(seen) and not order.stopped() and order.had < order.n:
            self._give_up(order, Refused(RefusedKind.NOT_ROLLING, seen.raw))

    def _give_up(self, order: Order, why: Refused) -> None:
        order.stop = order.stop or why
        if order.held:
            order.back.append(self._tasks.spawn(self._return_held(order), "give back"))

    async def _return_held(self, order: Order) -> None:
        uuids = [claimed.episode_uuid for claimed in order.take()]
        cause = order.stop.text or order.stop.kind.value if order.stop else ""
        await self.give_back(uuids, cause)
        if uuids and order.on_returned is not None:
            order.on_returned(uuids, cause)


def _not_rolling(seen: Seen) -> bool:
    return seen.reachable and seen.state is not EngineState.ROLLING
