"""Claiming episodes of one server: a whole group or nothing, one turn at a time.

Holding a part of a group while waiting for the rest deadlocks the server's batch (it waits for
every claimed episode) and many groups that do it deadlock each other. So a group that cannot have
all its episodes gives back what it got, at once, and waits with empty hands. Only when that is in
vain for a while, because other clients take each episode the moment it is free, may the one group
that has its turn gather: keep what it gets, in short windows and in ROLLING alone.

While all is granted, one turn claims for several groups, see `swarm.flight`: else each of them
would wait for a way to the server and back of all that came before it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence

from core.tasks import Limit
from swarm.answers import Claimed, Refused, RefusedKind
from swarm.client import GENERAL, AsyncSwarmClient
from swarm.errors import ClaimTimedOut
from swarm.orders import OnClaimed, OnReturned, Order, Windows
from swarm.returns import SECOND_LOOK
from swarm.schemas import EngineState
from swarm.tries import Tries
from swarm.watcher import Watcher

log = logging.getLogger(__name__)

BACK_OFF, OTHER_BACK_OFF = (0.05, 0.25), (0.25, 1.0)
"""Seconds between tries, drawn anew each time: no episode is free; a refusal nobody foresaw."""
NO_ANSWER = "no answer to the claim"
"""Why a deadline came first, when nothing else is known."""

_ROLLING = frozenset({EngineState.ROLLING})


class ClaimDesk(Tries):
    """Claims for one server; one per server and process.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        known: The uuids the caller answers for: from `on_claimed` on, until ended or returned.
            What the server holds in our name beyond them is given back by `reconcile`.
        on_stray: Called with uuids that `reconcile` gave back.
        timeout: Seconds a claim or an abort may take before its outcome counts as unknown; more
            than the 19 s a server is frozen while it stops an engine.
        second_look: See `SECOND_LOOK`.
        rng: For the back-off.
    """

    def __init__(
        self,
        client: AsyncSwarmClient,
        watcher: Watcher,
        *,
        known: Callable[[], Collection[str]],
        on_stray: Callable[[Sequence[str]], None] | None = None,
        timeout: float = GENERAL,
        second_look: float = SECOND_LOOK,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            client,
            watcher,
            known=known,
            on_stray=on_stray,
            timeout=timeout,
            second_look=second_look,
            rng=rng or random.Random(),
        )
        self._starved = False
        self.on_starved: Callable[[], None] | None = None
        """Called when a group begins to wait for an episode because none is free."""

    @property
    def starved(self) -> bool:
        """True while a group waits because no episode is free."""
        return self._starved

    @property
    def waiting(self) -> bool:
        """True while a group has its turn, or queues for it."""
        return self._line.busy

    async def claim_group(
        self,
        n: int,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: float | None = None,
        lane: str = "",
        on_intent: Callable[[], Awaitable[None]] | None = None,
        on_claimed: OnClaimed | None = None,
        on_returned: OnReturned | None = None,
    ) -> list[Claimed]:
        """Claim `n` episodes together, waiting for the engine and for free episodes.

        When cancelled, everything claimed so far and every claim still on its way is given back
        in the background (see `close`), with `on_returned`.

        Args:
            n: Episodes of the group.
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes an episode back.
            deadline: On the event loop's clock (`loop.time()`); None waits without end.
            lane: Whom it takes turns with when groups queue, as a session.
            on_intent: Awaited once, before the first claim: time to make the intent durable.
            on_claimed: Called for each episode at the moment it is ours, also when it is given
                back right after.
            on_returned: Called for those given back.

        Returns:
            All `n`; never fewer.

        Raises:
            ClaimTimedOut: the deadline came first; everything goes back as when cancelled.
            Exception: what `on_intent` or `on_claimed` raised; nothing is held.
        """
        order = Order(n, episode_type, discard_timeout, on_claimed, on_returned, lane)
        try:
            async with Limit(deadline, self._loop):
                if on_intent is not None:
                    await on_intent()
                while not await self._in_turn(order):
                    pass
                return order.take()
        except TimeoutError:
            raise ClaimTimedOut(n, order.best, self._why_late(order), self.client.name) from None

    def _why_late(self, order: Order) -> str:
        seen = self.watcher.current
        if not order.cut:
            return order.stop.kind.value if order.stop else seen.shown.value
        if not seen.is_in(_ROLLING):
            return seen.shown.value
        return order.last.kind.value if order.last else NO_ANSWER

    async def _in_turn(self, order: Order) -> bool:
        """Try until all are held; False when it has to stand in line once more, as when a smaller
        group, that waits behind it, goes first."""
        if not await self._stand_in_line(order):
            if order.error is not None:
                raise order.error
            return order.complete  # it was served in the turn of another one
        order.in_turn = True
        clock = self._loop.time
        began = clock()
        windows: Windows | None = None
        """None until a try was in vain: there is none in a group's first moment."""
        try:
            while True:
                await self.watcher.wait_for(_ROLLING)
                order.stop, order.had = None, 0
                window = windows.open(clock()) if windows is not None and order.n > 1 else 0.0
                if window and self._line.owes(order):
                    window = 0.0
                if (refused := await self._attempt(order, order.tried, window)) is None:
                    return True
                order.refused()
                windows = windows or Windows(self._rng, began)
                self._starve(none_free := refused.kind is RefusedKind.NONE_AVAILABLE)
                if window or not none_free:
                    windows.shut(clock(), none_free)
                await self._wait_after(refused)
                if none_free and self._line.steps_aside(order, clock() - began):
                    return False
        finally:
            self._turn_over(order)

    async def _stand_in_line(self, order: Order) -> bool:
        """Wait for the turn; False without it, then it is served or has to come once more."""
        try:
            return await self._line.take(order.n, order.lane, order)
        except asyncio.CancelledError:
            if order.alongside:
                order.cut = not order.complete
                self._give_up(order, Refused(RefusedKind.OTHER, "cancelled"))
            raise

    def _turn_over(self, order: Order) -> None:
        if order.in_turn:
            self._starve(False)
        super()._turn_over(order)

    async def refill(
        self,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: float | None = None,
        on_claimed: OnClaimed | None = None,
        on_returned: OnReturned | None = None,
    ) -> Claimed | None:
        """Claim one episode more for a group that already holds some; goes before waiting groups.

        Gives up as soon as the engine does not roll: whoever holds episodes must not wait for a
        boundary that waits for them.

        Args: as of `claim_group`.

        Returns:
            The episode, or None: not rolling, or none free before the deadline.
        """
        order = Order(1, episode_type, discard_timeout, on_claimed, on_returned)
        try:
            async with asyncio.timeout_at(deadline):
                while self.watcher.current.is_in(_ROLLING):
                    order.stop = None
                    if (refused := await self._attempt(order, False)) is None:
                        return order.take()[0]
                    if refused.kind is not RefusedKind.NONE_AVAILABLE:
                        self.watcher.nudge()
                        return None
                    with self.watcher.eager():
                        await asyncio.sleep(self._rng.uniform(*BACK_OFF))
        except TimeoutError:
            pass
        return None

    def _starve(self, starved: bool) -> None:
        begins = starved and not self._starved
        self._starved = starved
        if begins and self.on_starved is not None:
            self.on_starved()

    async def _wait_after(self, refused: Refused) -> None:
        with self.watcher.eager():
            if refused.kind is RefusedKind.NONE_AVAILABLE:
                await asyncio.sleep(self._rng.uniform(*BACK_OFF))
            elif refused.kind is RefusedKind.OTHER:
                await asyncio.sleep(self._rng.uniform(*OTHER_BACK_OFF))
            else:  # what the watcher last saw is older than this answer
                await self.watcher.refresh()
