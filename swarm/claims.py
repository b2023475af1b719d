"""Claiming episodes of one server: a whole group or nothing, one group at a time.

Holding a part of a group while waiting for the rest deadlocks the server's batch (it waits for
every claimed episode) and many groups that do it deadlock each other. So a group that cannot have
all its episodes gives back what it got, at once, and waits with empty hands. Only when that is in
vain for a while, because other clients take each episode the moment it is free, may the one group
that has its turn gather: keep what it gets, in short windows and in ROLLING alone.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any

from core.tasks import Limit
from swarm.answers import Claimed, Refused, RefusedKind
from swarm.attempt import Attempt
from swarm.calls import Call
from swarm.client import GENERAL, AsyncSwarmClient
from swarm.errors import ClaimTimedOut
from swarm.orders import Line, OnClaimed, OnReturned, Order, Windows
from swarm.returns import SECOND_LOOK, Returns
from swarm.schemas import EngineState
from swarm.watcher import Seen, Watcher

log = logging.getLogger(__name__)

BACK_OFF, OTHER_BACK_OFF = (0.05, 0.25), (0.25, 1.0)
"""Seconds between tries, drawn anew each time: no episode is free; a refusal nobody foresaw."""
PACE = (0.003, 0.01)
"""Seconds between two claims of a group that gathers."""
NO_ANSWER = "no answer to the claim"
"""Why a deadline came first, when nothing else is known."""

_ROLLING = frozenset({EngineState.ROLLING})


class ClaimDesk(Returns):
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
        )
        self._rng = rng or random.Random()
        self._runs_on: asyncio.AbstractEventLoop | None = None
        self._line = Line()
        """One group has its turn: it tries and waits; the others queue."""
        self._gathering: Order | None = None
        """What that group has, while it keeps a part."""
        self._starved = False
        self.on_starved: Callable[[], None] | None = None
        """Called when a group begins to wait for an episode because none is free."""

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Asked for once: asyncio's own look-up costs a call to the system each time."""
        if self._runs_on is None:
            self._runs_on = asyncio.get_running_loop()
        return self._runs_on

    @property
    def starved(self) -> bool:
        """True while a group waits because no episode is free."""
        return self._starved

    @property
    def waiting(self) -> bool:
        """True while a group has its turn, or queues for it."""
        return self._line.taken

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
        """Try until all are held; False when a smaller group, that waits behind it, goes first."""
        if not await self._line.take(order.n, order.lane):
            return False
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

    def _turn_over(self, order: Order) -> None:
        if order.in_turn:
            order.in_turn = False
            self._starve(False)
            self._line.release()

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

        Mostly all are granted: then the turn is over with the last answer.

        Returns:
            What goes on in the background, also when nobody waits for it.
        """
        remove = self.watcher.add_listener(lambda seen: self._on_change(order, seen))

        def finished() -> None:
            remove()
            self._hands.release()
            if not order.stopped():
                self._turn_over(order)

        attempt = Attempt(
            order,
            over=self._loop.create_future(),
            note=self._note,
            give_back=self._return_held,
            spawn=self._tasks.spawn,
            finished=finished,
        )
        calls: list[Call[Claimed | Refused]] = []
        others: list[Coroutine[Any, Any, None]] = []
        for _ in range(0 if order.stopped() else order.n - order.had):
            call = self.client.begin_claim(
                order.episode_type, order.discard_timeout, timeout=self.timeout
            )
            if call is not None:
                calls.append(call)
            else:
                others.append(self._claim_one(order))
        attempt.begin(calls, others)
        return attempt

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
            order.had += 1
            order.held.append(answer)
            # The server uses a uuid again after it was given back: it is ours anew.
            self._owed.discard(answer.episode_uuid)
            self._returning.discard(answer.episode_uuid)
            if order.on_claimed is not None:
                self._announce(order, order.on_claimed, answer.episode_uuid)
        else:
            if answer.kind is RefusedKind.UNKNOWN:
                self._sweep_soon()
            if not (order.stopped() or order.goes_on(answer)):
                order.stop = answer

    def _announce(self, order: Order, tell: Callable[[str], None], uuid: str) -> None:
        try:
            tell(uuid)
        except Exception as error:  # whatever the caller's fault, no claim may be left behind
            log.exception("a claim could not be noted")
            order.error = error
            order.stop = Refused(RefusedKind.OTHER, "the claim could not be noted")

    def _on_change(self, order: Order, seen: Seen) -> None:
        """The engine left ROLLING under an incomplete group: the rest will be refused."""
        left = seen.reachable and seen.state is not EngineState.ROLLING
        if left and not order.stopped() and order.had < order.n:
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
