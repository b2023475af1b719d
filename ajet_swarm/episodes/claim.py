"""How a claim works: a group gets all its episodes or holds none while it waits.

Example: a group needs four episodes. It waits for its place in the `ClaimQueue`, then sends four
claims at once. Three are granted and one is refused: the three are given back at once, and when the
server has confirmed that, the group pauses for a random time and tries again, with one claim first
and the others after it is granted. After a second without success, other clients probably take
each episode the moment it is free: in windows of a random one to three seconds the group keeps what
it gets and asks for the rest, and between two windows it claims all or none for as long as the last
one took. A group in vain for a second also lets smaller waiting ones go first, see `ClaimQueue`. It
holds a part of a group only while the engine rolls, since a batch does not end while an episode of
it is claimed, and only one group of a process does so, since two that each hold a part would wait
for each other.

A caller may leave at any moment: its claims go on in the background, and what they are granted is
given back. A claim whose answer is lost is found in the server's records.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.api.wire import GENERAL, SwarmWire
from ajet_swarm.common.tasks import Deadline, timeout_at
from ajet_swarm.episodes.ends import SEARCH_AGAIN, EpisodeEnds
from ajet_swarm.episodes.queue import ClaimQueue, Origin, QueueEntry
from ajet_swarm.protocol.errors import ClaimTimedOut, SwarmError
from ajet_swarm.protocol.schemas import Claimed, ClaimRefused, EngineState, RefusedKind
from ajet_swarm.runtime import SYSTEM, Runtime

log = logging.getLogger(__name__)

BACK_OFF, OTHER_BACK_OFF = (0.05, 0.25), (0.25, 1.0)
"""Seconds between attempts, drawn at random: no episode is free; a refusal of an unknown kind."""
KEEP_AFTER = 1.0
"""Seconds of attempts in vain, times 0.8 to 1.2, after which a group keeps a part."""
KEEP = (1.0, 3.0)
"""Range of the seconds of a window in which a group keeps each episode that it gets. The length is
random: of two clients that each hold a part, one gives up first and the other gets all."""
PACE = (0.003, 0.01)
"""Seconds between two claims in a window. Beside a client that takes each episode as soon as it is
free, 20 to 80 ms make a group of four wait 19 s instead of 5 (`tests/faults/test_matrix.py`)."""
NO_ANSWER = "no answer to the claim"
"""Reason of a timeout when no other is known."""

_ROLLING = frozenset({EngineState.ROLLING})
_TIMED = (RefusedKind.NONE_AVAILABLE, RefusedKind.OTHER)
"""Refusals after which a claim is repeated after some time; after others, the state decides."""

OnClaimed = Callable[[str], None]
"""Called with each uuid as soon as its claim is granted."""
OnReturned = Callable[[Sequence[str], str], None]
"""Called with the uuids that are given back from now on, and the reason."""


class _Claim(msgspec.Struct, eq=False):
    """A claim of `n` episodes, and its progress."""

    n: int
    episode_type: str
    discard_timeout: float
    on_claimed: OnClaimed | None = None
    on_returned: OnReturned | None = None
    policy: Mapping[str, Any] | None = None
    """Throttle policy of the episode's task."""
    held: list[Claimed] = []
    granted: int = 0
    """Number of episodes that this attempt got."""
    best: int = 0
    """Largest number of episodes that an attempt got."""
    keeps: bool = False
    """Whether it keeps what it holds while no other episode is free."""
    stop: ClaimRefused | None = None
    """Why this attempt was stopped; None while it was not."""
    last: ClaimRefused | None = None
    """Why the previous attempt failed; None before the first failure."""
    cut: bool = False
    """Whether the caller left while claims were unanswered."""
    error: Exception | None = None
    """Error of `on_claimed`, or a fault of the client."""
    releases: "list[asyncio.Task[list[str]]]" = []
    """Tasks that give back what a stopped attempt held."""

    def stopped(self) -> bool:
        """Return whether this attempt was stopped."""
        return self.stop is not None

    @property
    def missing(self) -> int:
        """Number of claims that are still to be sent; 0 after the attempt was stopped."""
        return 0 if self.stop is not None else self.n - self.granted

    def take_held(self) -> list[Claimed]:
        """Return the held episodes, whose owner is now the caller."""
        held, self.held = self.held, []
        return held


class EpisodeClaimer:
    """Claims episodes of one server: groups, and single ones. One per server and process.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        timeout: Seconds after which the outcome of a claim or an abort counts as unknown; more than
            the 19 s for which a server is frozen while it stops an engine.
        search_again: See `SEARCH_AGAIN`.
        back_off: Range of the seconds between attempts while no episode is free; None for
            `BACK_OFF`.
        runtime: Source of times and pauses.

    Attributes:
        ends: What it holds, and the ends and aborts of that.
        queue: Order of the claims.
        keeping: Whether a group is in a window in which it keeps a part.
        refusal: Why the latest attempt failed; None if it did not.
    """

    def __init__(
        self,
        client: SwarmWire,
        watcher: Watcher,
        *,
        timeout: float = GENERAL,
        search_again: float = SEARCH_AGAIN,
        back_off: tuple[float, float] | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.client = client
        self.watcher = watcher
        self.queue = ClaimQueue()
        self.keeping = False
        self.refusal: ClaimRefused | None = None
        self._back_off = back_off
        self.ends = EpisodeEnds(
            client,
            watcher,
            timeout=timeout,
            search_again=search_again,
            clock=runtime.clock,
        )
        self._chance = runtime.chance
        self._closed = False
        self._rolled = watcher.current.is_in(_ROLLING)
        watcher.add_listener(self._on_status)

    def _on_status(self, seen: ServerStatus) -> None:
        rolls = seen.is_in(_ROLLING)
        if rolls and not self._rolled:
            self.queue.reopen()
        self._rolled = rolls

    async def claim_group(
        self,
        n: int,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: Deadline | None = None,
        origin: Origin = (),
        entry: QueueEntry | None = None,
        policy: Mapping[str, Any] | None = None,
        until_rolling: Callable[[], Awaitable[object]] | None = None,
        on_intent: Callable[[], Awaitable[None]] | None = None,
        on_claimed: OnClaimed | None = None,
        on_returned: OnReturned | None = None,
    ) -> list[Claimed]:
        """Claim `n` episodes together, waiting for the engine and for free episodes.

        When cancelled, everything claimed so far, and every claim in flight, is given back in the
        background (see `close`), with `on_returned`.

        Args:
            n: Number of episodes of the group.
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes an episode back.
            deadline: Time on the event loop's clock (`loop.time()`); None waits without end. A
                function is called again at the time it returned, and may postpone it.
            origin: Its sender, see `QueueEntry`; ignored with `entry`.
            entry: Its place in the queue, which the caller lets leave afterwards; None for one that
                ends with this call.
            policy: Throttle policy of the task.
            until_rolling: Waits for the engine before each attempt, and may raise; None for a wait
                without limit.
            on_intent: Awaited once, before the first claim, for example to make the intent durable.
            on_claimed: Called for each episode as soon as it is granted, even when it is given back
                directly afterwards.
            on_returned: Called with episodes of a failed attempt as soon as they are given back,
                before the server confirms it and before any error is raised here.

        Returns:
            Exactly `n` episodes.

        Raises:
            ClaimTimedOut: the deadline passed; everything is given back as on cancellation.
            SwarmError: `close` was called.
            Exception: the error of `on_intent` or `on_claimed`; nothing is held.
        """
        claim = _Claim(n, episode_type, discard_timeout, on_claimed, on_returned, policy)
        ready = until_rolling or partial(self.watcher.wait_for, _ROLLING)
        place = entry or QueueEntry(self.queue, origin)
        place.size = n
        try:
            async with timeout_at(deadline):
                if on_intent is not None:
                    await on_intent()
                await place.take()
                while not await self._try_in_order(claim, place, ready):
                    pass
                place.claimed()
                return claim.take_held()
        except TimeoutError:
            raise ClaimTimedOut(n, claim.best, self._why_late(claim), self.client.name) from None
        finally:
            if entry is None:
                place.leave()
            else:
                place.end_claims()

    async def claim_one(
        self, episode_type: str, discard_timeout: float, on_claimed: OnClaimed | None = None
    ) -> Claimed | ClaimRefused:
        """Send one claim out of order; when cancelled, give back the episode that it may get.

        Args:
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes the episode back.
            on_claimed: See `claim_group`.

        Raises:
            SwarmError: `close` was called.
        """
        claim = _Claim(1, episode_type, discard_timeout, on_claimed)
        return await self._attempt(claim) or claim.take_held()[0]

    async def refill(
        self,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: float | None = None,
        on_claimed: OnClaimed | None = None,
        on_returned: OnReturned | None = None,
    ) -> Claimed | None:
        """Claim one more episode for a group that already holds some, ahead of waiting groups.

        Give up as soon as the engine does not roll: a group that holds episodes must not wait for a
        batch boundary that waits for those episodes.

        Args:
            episode_type: See `claim_group`.
            discard_timeout: Idle seconds after which the server takes the episode back.
            deadline: Time on the event loop's clock; None for no deadline.
            on_claimed: See `claim_group`.
            on_returned: See `claim_group`.

        Returns:
            The episode; None when the engine does not roll or none was free before the deadline.
        """
        claim = _Claim(1, episode_type, discard_timeout, on_claimed, on_returned)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self.watcher.current.is_in(_ROLLING):
                    if (refused := await self._attempt(claim)) is None:
                        return claim.take_held()[0]
                    if refused.kind is not RefusedKind.NONE_AVAILABLE:
                        self.watcher.nudge()
                        return None
                    await self._pause(refused)
        return None

    async def refuse_claims(self) -> None:
        """Refuse further claims, and wait for the claims in flight."""
        self._closed = True
        async with self.ends.lock.alone():
            pass

    async def close(self, seconds: float = 5.0) -> None:
        """See `EpisodeEnds.close`."""
        await self.ends.close(seconds)

    # --- one group ------------------------------------------------------------------------------

    async def _try_in_order(
        self, claim: _Claim, entry: QueueEntry, until_rolling: Callable[[], Awaitable[object]]
    ) -> bool:
        """Try until all episodes are held; return False when smaller groups went first."""
        clock = asyncio.get_running_loop().time
        began, keep_from = clock(), math.inf
        logged: ClaimRefused | None = None
        while True:
            await until_rolling()
            may_keep = claim.n > 1 and clock() >= keep_from and not self.keeping
            window = 0.0
            if may_keep and not entry.must_not_hold_parts():
                window = self._chance.uniform(*KEEP)
            if (refused := await self._attempt(claim, window)) is None:
                return True
            none_free = refused.kind is RefusedKind.NONE_AVAILABLE
            entry.refused(none_free)
            if refused.kind is RefusedKind.OTHER and refused != logged:
                logged = refused
                log.warning("%s refused a claim: %s", self.client.name, refused.text)
            if window and none_free:
                keep_from = clock() + window
            elif keep_from == math.inf or not none_free:
                start = began if none_free else clock()
                keep_from = start + self._chance.uniform(0.8, 1.2) * KEEP_AFTER
            await self._pause(refused)
            if refused.kind not in _TIMED:
                await until_rolling()
            if await entry.again(clock() - began):
                return False

    async def _pause(self, refused: ClaimRefused) -> None:
        """Wait after a refusal until another claim may be granted."""
        if refused.kind not in _TIMED:
            await self.watcher.refresh()  # the watcher's status is older than this answer
            return
        seconds = OTHER_BACK_OFF
        if refused.kind is RefusedKind.NONE_AVAILABLE:
            seconds = self._back_off or BACK_OFF
        with self.watcher.eager():
            await asyncio.sleep(self._chance.uniform(*seconds))

    def _why_late(self, claim: _Claim) -> str:
        seen = self.watcher.current
        if not claim.cut:
            return claim.stop.kind.value if claim.stop else seen.display_state.value
        if not seen.is_in(_ROLLING):
            return seen.display_state.value
        return claim.last.kind.value if claim.last else NO_ANSWER

    # --- one attempt ---------------------------------------------------------------------------

    async def _attempt(self, claim: _Claim, window: float = 0.0) -> ClaimRefused | None:
        """Try once to get all episodes; when cancelled, give back everything.

        Returns only after all returned episodes are confirmed: the next attempt may get the same
        uuids.

        Args:
            claim: The claim.
            window: Seconds in which it keeps a part; 0 for none.

        Returns:
            The reason of the failure; None when all is held.
        """
        if self._closed or self.ends.tasks.closing:
            raise self._closed_error()
        claim.stop, claim.granted = None, 0
        work = self._keep_claiming(claim, window) if window else self._send(claim)
        task = self.ends.tasks.spawn(work, "claim")
        try:
            await asyncio.wait({task})
            if claim.releases:
                await asyncio.wait(claim.releases)
                claim.releases.clear()
        except asyncio.CancelledError:
            claim.cut = not claim.stopped()
            self._stop(claim, ClaimRefused(RefusedKind.OTHER, "cancelled"))
            raise
        if task.cancelled():  # its owner was closed
            self._stop(claim, ClaimRefused(RefusedKind.OTHER, "the client was closed"))
            raise self._closed_error()
        if claim.error is not None:
            raise claim.error
        self.refusal = claim.stop
        if claim.stopped():
            claim.last, claim.best = claim.stop, max(claim.best, claim.granted)
        return claim.stop

    def _closed_error(self) -> SwarmError:
        return SwarmError("this client is closed", self.client.name)

    async def _send(self, claim: _Claim) -> None:
        """Send all claims at once; after a refusal one first, and the others once it is granted."""
        with self._stopped_outside_rolling(claim):
            async with self.ends.lock.shared():
                if claim.last is not None:
                    await self._send_one(claim)
                async with asyncio.TaskGroup() as group:
                    for _ in range(claim.missing):
                        group.create_task(self._send_one(claim))

    async def _keep_claiming(self, claim: _Claim, seconds: float) -> None:
        """Collect episodes as they become free; give all back if some are missing at the end."""
        end = ClaimRefused(RefusedKind.NONE_AVAILABLE, "not enough became free")
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(seconds, self._stop, claim, end)
        claim.keeps = self.keeping = True
        try:
            with self._stopped_outside_rolling(claim), self.watcher.eager():
                while claim.missing:
                    before = claim.missing
                    async with self.ends.lock.shared():
                        await self._send_one(claim)
                    if claim.missing == before:
                        await asyncio.sleep(self._chance.uniform(*PACE))
        finally:
            alarm.cancel()
            claim.keeps = self.keeping = False

    async def _send_one(self, claim: _Claim) -> None:
        """Send one claim and record the answer; return the episode if the attempt was stopped."""
        if claim.stopped():
            return
        if self._closed:
            claim.error = self._closed_error()
            self._stop(claim, ClaimRefused(RefusedKind.OTHER, "the client was closed"))
            return
        try:
            answer = await self.client.claim(
                claim.episode_type,
                claim.discard_timeout,
                timeout=self.ends.timeout,
                throttle_policy=claim.policy,
            )
            if isinstance(answer, Claimed):
                claim.granted += 1
                claim.held.append(answer)
                self.ends.holdings.granted(answer)
                try:
                    if claim.on_claimed is not None:
                        claim.on_claimed(answer.episode_uuid)
                finally:
                    if claim.stop is not None:
                        self._stop(claim, claim.stop)
                return
        except Exception as error:  # the other claims go on, and nothing may stay claimed
            log.exception("a claim failed, or could not be recorded")
            claim.error = error
            answer = ClaimRefused(RefusedKind.OTHER, "it failed")
        if answer.kind is RefusedKind.UNKNOWN:
            self.ends.search_soon()
        if not (claim.keeps and answer.kind is RefusedKind.NONE_AVAILABLE):
            self._stop(claim, answer)

    def _stop(self, claim: _Claim, why: ClaimRefused) -> None:
        """Stop an attempt; a background task gives back what it holds, with `on_returned`.

        That is reported at once, so that nobody gives an episode back a second time.
        """
        claim.stop = claim.stop or why
        uuids = [claimed.episode_uuid for claimed in claim.take_held()]
        if not uuids:
            return
        cause = claim.stop.text or claim.stop.kind.value
        claim.releases.append(self.ends.return_soon(uuids, cause))
        if claim.on_returned is not None:
            try:
                claim.on_returned(uuids, cause)
            except Exception:  # boundary of the caller's code: the task above gives back anyway
                log.exception("a return could not be recorded")

    @contextlib.contextmanager
    def _stopped_outside_rolling(self, claim: _Claim) -> Iterator[None]:
        """Context in which an incomplete attempt is stopped when the engine leaves ROLLING."""

        def on_change(seen: ServerStatus) -> None:
            if seen.reachable and seen.state is not EngineState.ROLLING and claim.missing:
                self._stop(claim, ClaimRefused(RefusedKind.NOT_ROLLING, seen.raw))

        remove = self.watcher.add_listener(on_change)
        try:
            yield
        finally:
            remove()
