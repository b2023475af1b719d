"""Claiming episodes of one server: a whole group or nothing, one group at a time.

Holding a part of a group while waiting for the rest deadlocks the server's batch (it waits for
every claimed episode) and many groups that do it deadlock each other. So a group that cannot have
all its episodes gives back what it got, at once, and waits with empty hands.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence

from core.tasks import Crew, Limit, Tasks
from swarm.answers import Claimed, Refused, RefusedKind
from swarm.calls import Call, settle
from swarm.client import GENERAL, AsyncSwarmClient
from swarm.errors import ClaimTimedOut, SwarmError
from swarm.orders import OnClaimed, OnReturned, Order
from swarm.schemas import EngineState
from swarm.watcher import Seen, Watcher

log = logging.getLogger(__name__)

BACK_OFF, OTHER_BACK_OFF = (0.05, 0.25), (0.25, 1.0)
"""Seconds between tries, drawn anew each time: no episode is free; a refusal nobody foresaw."""
LOOK = 3.0
"""Seconds a look at the server's records may hold up claims."""
SECOND_LOOK = 5.0
"""Seconds after which lost claims are looked for again: a frozen server may run one late."""

_ROLLING = frozenset({EngineState.ROLLING})


class ClaimDesk:
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
        self.client = client
        self.watcher = watcher
        self.known = known
        self.on_stray = on_stray
        self.timeout = timeout
        self.second_look = second_look
        self._rng = rng or random.Random()
        self._turn = asyncio.Lock()
        """Held by the group that tries and waits; the others queue, first come first served."""
        self._behind: list[int] = []
        """How many episodes each of them wants."""
        self._hands = asyncio.Lock()
        """Held while claims are on their way, never while waiting."""
        self._sweeps = asyncio.Lock()
        """Held by who looks for strays: an abort sent twice may hit who claimed it since."""
        self._tasks = Tasks(f"claims:{client.name}")
        self._returning: set[str] = set()
        """On their way back; a uuid that is claimed again meanwhile leaves the set."""
        self._owed: set[str] = set()
        """Given back by us, but the server did not confirm."""
        self._sweeping = False
        self._doubt = False
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
        return self._turn.locked()

    async def claim_group(
        self,
        n: int,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: float | None = None,
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
        order = Order(n, episode_type, discard_timeout, on_claimed, on_returned)
        try:
            async with Limit(deadline):
                if on_intent is not None:
                    await on_intent()
                while not await self._in_turn(order):
                    pass
                return order.take()
        except TimeoutError:
            cause = order.stop.kind.value if order.stop else self.watcher.current.shown.value
            raise ClaimTimedOut(n, order.best, cause, self.client.name) from None

    async def _in_turn(self, order: Order) -> bool:
        """Try until all are held; False when a smaller group, that waits behind it, goes first."""
        self._behind.append(order.n)
        try:
            await self._turn.acquire()
        finally:
            self._behind.remove(order.n)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            while True:
                await self.watcher.wait_for(_ROLLING)
                order.stop, order.had = None, 0
                if (refused := await self._attempt(order, order.tried)) is None:
                    return True
                order.refused()
                self._starve(none_free := refused.kind is RefusedKind.NONE_AVAILABLE)
                await self._wait_after(refused)
                if none_free and order.steps_aside(clock() - began, self._behind):
                    return False
        finally:
            self._starve(False)
            self._turn.release()

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

    async def give_back(self, uuids: Sequence[str], cause: str = "") -> None:
        """Abort episodes of ours, together; what the server does not confirm is swept later."""
        if not uuids:
            return
        self._returning.update(uuids)
        done = await self._abort(uuids)
        failed = [uuid for uuid, ok in zip(uuids, done, strict=True) if not ok]
        failed = [uuid for uuid in failed if uuid in self._returning]
        self._returning.difference_update(uuids)
        if failed:
            log.warning("%d episodes not given back (%s), will try again", len(failed), cause)
            self._owed.update(failed)
            self._sweep_soon()

    async def reconcile(self) -> list[str]:
        """Give back what the server holds in our name and the caller does not know of.

        Returns:
            The uuids given back.

        Raises:
            SwarmError: the server did not tell what it holds.
        """
        async with self._sweeps:
            async with self._hands:  # no claim of ours is on its way meanwhile
                before = set(self.known())
                records = await self.client.buffer(timeout=LOOK)
                known = (before | set(self.known())) - self._owed
            me = self.client.client_uuid
            ours = [r.episode_uuid for r in records if r.claimed and r.client_uuid == me]
            self._owed.intersection_update(ours)
            strays = [uuid for uuid in ours if uuid not in known]
            done = await self._abort(strays)
        returned = [uuid for uuid, ok in zip(strays, done, strict=True) if ok]
        self._owed.difference_update(returned)
        if returned and self.on_stray is not None:
            self.on_stray(returned)
        if len(returned) < len(strays):
            raise SwarmError("an episode could not be given back", self.client.name)
        return returned

    async def settle(self, seconds: float) -> bool:
        """Wait until everything under way in the background is over; False when it is not."""
        return await self._tasks.drain(seconds)

    async def close(self, seconds: float = 5.0) -> None:
        """Wait up to `seconds` for episodes on their way back, then stop."""
        await self._tasks.drain(seconds)
        await self._tasks.close()

    async def _abort(self, uuids: Sequence[str]) -> list[bool]:
        return await asyncio.gather(
            *(self.client.abort(uuid, timeout=self.timeout) for uuid in uuids)
        )

    async def _attempt(self, order: Order, probe: bool) -> Refused | None:
        """Try once; None when `order.held` is complete. Cancelled, it leaves nothing held."""
        work = self._tasks.spawn(self._claim_all(order, probe), "claim")
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self._give_up(order, Refused(RefusedKind.OTHER, "cancelled"))
            raise
        if order.error is not None:
            raise order.error
        return order.stop

    async def _claim_all(self, order: Order, probe: bool) -> None:
        """All claims of a try, together; after a refusal one goes ahead to see if any is free."""
        async with self._hands:
            remove = self.watcher.add_listener(lambda seen: self._on_change(order, seen))
            try:
                if probe:
                    await self._claim_one(order)
                await self._claim_rest(order)
            finally:
                remove()

    async def _claim_rest(self, order: Order) -> None:
        """What is missing, all at once."""
        crew = Crew()
        begun: list[Call[Claimed | Refused]] = []

        def heard(index: int) -> None:
            self._note(order, begun[index].result())
            if order.stopped() and order.held:
                crew.add(self._return_held(order))

        for _ in range(order.n - order.had):
            if order.stopped():
                break
            call = self.client.begin_claim(
                order.episode_type, order.discard_timeout, timeout=self.timeout
            )
            if call is not None:
                begun.append(call)
            else:
                crew.add(self._claim_one(order))
        try:
            if begun:
                await settle(begun, heard)
        finally:
            if crew:
                await crew.results()

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
            self._announce(order, answer.episode_uuid)
        else:
            if answer.kind is RefusedKind.UNKNOWN:
                self._sweep_soon()
            if not order.stopped():
                order.stop = answer

    def _announce(self, order: Order, uuid: str) -> None:
        if order.on_claimed is None:
            return
        try:
            order.on_claimed(uuid)
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
            self._tasks.spawn(self._return_held(order), "give back")

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

    def _sweep_soon(self) -> None:
        self._doubt = True
        if not self._sweeping:
            self._sweeping = True
            self._tasks.spawn(self._sweep(), "sweep")

    async def _sweep(self) -> None:
        try:
            while self._doubt:
                self._doubt = False
                await self._reconcile_surely()
                await asyncio.sleep(self.second_look)
                await self._reconcile_surely()
        finally:
            self._sweeping = False

    async def _reconcile_surely(self) -> None:
        while True:
            await self.watcher.wait_for(lambda seen: seen.reachable)
            try:
                await self.reconcile()
                return
            except SwarmError as error:
                log.warning("lost claims not swept yet: %s", error)
                await asyncio.sleep(1.0)
