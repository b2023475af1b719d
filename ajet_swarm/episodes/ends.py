"""How a reward is sent: the claim of an episode is over by one end or one abort. It is sent again
only if the records show that this claim still holds the episode.

An end carries the reward; an abort returns the episode without one. The server does not check who
aborts, and an episode keeps its uuid when it returns to the pool, so whatever is sent a second time
may hit the next owner. Each claim has an own `Holding`, which is the fence: once the server grants
the uuid to this client again, the earlier holding is superseded, and nothing is sent for it.

Example: `end` sends a reward, and the connection breaks. The end is not repeated yet, it may have
arrived: the server's records are read, four times in 6 s. If the episode is gone, its outcome is
unknown, and most likely it counts. If the same claim still holds it, the end was lost, and is sent
once more; an eval episode, which an end returns to the pool, is given back instead. If the server
could not be reached at all, nothing was sent: the end waits for it, up to `BACK` seconds.

An end or abort in flight goes on when its caller leaves. Until it is over, and while a server may
go on with one that a front in between cut off, no other one is sent, and the search for lost claims
ignores the episode. After its `lifetime` an end becomes an abort. Before whatever is sent when the
server may have taken an episode back, its records are read while no claim is in flight.

A claim whose answer was lost may have been granted: the server's records show the episodes that it
holds for this client, and those that nobody here holds are given back (`EpisodeEnds.reconcile`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import GENERAL, RUNNER, SwarmWire
from ajet_swarm.common.tasks import ReadWriteLock, Tasks
from ajet_swarm.episodes.holdings import Holding, Holdings, may_be_taken
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import AbortKind, EndKind, EndOutcome, WireOutput
from ajet_swarm.runtime import SYSTEM, Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

BROKEN_PAUSES = (0.0, 0.5, 1.5, 4.0)
"""Seconds before each reading of the records after an end whose connection broke."""
SILENT_PAUSES = (0.0, 5.0, 10.0, 15.0, 30.0)
"""The same after an end without an answer in time: the server was frozen, or is slow."""
BACK = 60.0
"""Seconds to wait for the server in order to send an end that could not be sent."""
RECORDS_TIMEOUT = 3.0
"""Time limit in seconds of a request for the server's records, which delays claims."""
SEARCH_AGAIN = 5.0
"""Seconds until lost claims are searched for again: a frozen server may execute one late."""
STEP = 0.25
"""Seconds between two checks in `close` that the server is still reachable."""

GRANTED_AGAIN = EndOutcome(
    EndKind.NOT_CLAIMED, "the server took it back, and granted it to this client again"
)
TAKEN_BACK = EndOutcome(EndKind.NOT_CLAIMED, "it is not ours any more: the server took it back")
_NOT_HELD = "the server does not hold it any more"
_UNCERTAIN = frozenset({EndKind.UNKNOWN_OUTCOME, EndKind.UNREACHABLE, EndKind.ERROR})
"""Outcomes after which the server may still hold the episode for this client."""


@dataclass(frozen=True, slots=True)
class _End:
    task_id: str
    output: WireOutput
    active: bool


class EpisodeEnds:
    """Holdings of one client at one server, and their ends and aborts.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        timeout: Seconds after which the outcome of a claim counts as unknown, and for which a
            caller waits for an abort.
        search_again: See `SEARCH_AGAIN`.
        clock: The clocks of the process.

    Attributes:
        holdings: What this client holds.
        lock: Shared by the claims in flight, never held between two attempts; who holds it alone
            has no claim in flight beside it.
        tasks: Work that continues when its caller is cancelled; `close` waits for it.
        sending: The ends in flight.
    """

    def __init__(
        self,
        client: SwarmWire,
        watcher: Watcher,
        *,
        timeout: float = GENERAL,
        search_again: float = SEARCH_AGAIN,
        clock: Clock = SYSTEM.clock,
    ) -> None:
        self.timeout = timeout
        self.search_again = search_again
        self.tasks = Tasks(f"claims:{client.name}")
        self.holdings = Holdings(clock, self.search_soon)
        self.lock = ReadWriteLock()
        self._client = client
        self._watcher = watcher
        self.sending = Tasks(f"ends:{client.name}")
        self._reconciling = asyncio.Lock()
        self._search_wanted = asyncio.Event()
        self._searching = self._closing = False

    # --- ends -----------------------------------------------------------------------------------

    async def end(
        self,
        holding: Holding,
        task_id: str,
        output: WireOutput,
        *,
        active: bool = True,
        sent_before: bool = False,
    ) -> EndOutcome:
        """Send the reward of a claim; see the module.

        Args:
            holding: The claim.
            task_id: The task, which names the group.
            output: The reward.
            active: Count this client among those that agree on updates.
            sent_before: A process that was killed may have sent it, too.
        """
        if holding.superseded:
            return GRANTED_AGAIN
        if holding.left_by:
            return EndOutcome(EndKind.NOT_CLAIMED, "it was ended or given back already")
        holding.left_by = "end"
        work = self._end(holding, _End(task_id, output, active), sent_before)
        return await asyncio.shield(self.sending.spawn(work, "end"))

    async def _end(self, holding: Holding, end: _End, sent_before: bool) -> EndOutcome:
        try:
            outcome = await self._outcome(holding, end, sent_before)
        except Exception:
            await self._abort_if_held(holding, "it could not be ended")
            raise
        finally:
            self.holdings.forget(holding)
        if outcome.kind in _UNCERTAIN:
            self.search_soon()
        return outcome

    async def _outcome(self, holding: Holding, end: _End, sent_before: bool) -> EndOutcome:
        age = self.holdings.age(holding)
        if age >= holding.lifetime:
            if not await self._abort_if_held(holding, "its lifetime was over"):
                return TAKEN_BACK
            text = f"more than {holding.lifetime:g} s after its claim: given back"
            return EndOutcome(EndKind.EXPIRED, text)
        doubtful = may_be_taken(holding, age)
        if doubtful and await self._client.can_continue(holding.uuid) is False:
            return TAKEN_BACK
        outcome = await self._send_when_reachable(holding, end, doubtful)
        if outcome.kind is EndKind.ERROR and holding.counts and await self._holds(holding):
            # The server failed before it accepted the reward.
            outcome = await self._send_again(holding, end)
        if sent_before:
            outcome = _of_repeated(outcome)
        if outcome.kind is EndKind.UNKNOWN_OUTCOME:
            outcome = await self._resolve(holding, end, outcome)
        if outcome.kind is EndKind.ERROR:
            await self._abort_if_held(holding, "its end was refused")
            if holding.superseded and holding.counts:
                return GRANTED_AGAIN
        return outcome

    async def _send_when_reachable(self, holding: Holding, end: _End, doubtful: bool) -> EndOutcome:
        """Send an end; if it certainly was not sent, wait for the server and try again."""
        until = 0.0
        while True:
            outcome = await self._send(holding, end, doubtful)
            if outcome.kind is not EndKind.UNREACHABLE or self.holdings.is_expired(holding):
                return outcome
            until = until or asyncio.get_running_loop().time() + BACK
            try:
                async with asyncio.timeout_at(until):
                    await self._watcher.refresh()
                    await self._watcher.wait_for(lambda seen: seen.reachable)
            except TimeoutError:
                return outcome
            doubtful = True

    async def _send(self, holding: Holding, end: _End, doubtful: bool) -> EndOutcome:
        """Send an end, unless the server has granted the episode to this client again.

        Args:
            holding: The claim.
            end: The end.
            doubtful: The server may have taken it back, so that a claim in flight may be for it.
        """
        if doubtful:
            async with self.lock.alone():
                pass
        if holding.superseded:
            return GRANTED_AGAIN
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            outcome = await self._client.end(
                holding.uuid, end.task_id, end.output, end.active, timeout=RUNNER
            )
        except asyncio.CancelledError:  # this client closes; the server goes on with it
            if not holding.superseded:
                self.holdings.set_aside(
                    holding.uuid, self.holdings.abort_timeout - (loop.time() - began)
                )
            raise
        if outcome.kind is EndKind.UNKNOWN_OUTCOME and not holding.superseded:
            self.holdings.cut_off(holding.uuid, loop.time() - began)
        return outcome

    async def _send_again(self, holding: Holding, end: _End) -> EndOutcome:
        """Send an end once more, though the first request may still arrive."""
        return _of_repeated(await self._send(holding, end, doubtful=True))

    async def _resolve(self, holding: Holding, end: _End, outcome: EndOutcome) -> EndOutcome:
        """Find the outcome of an end without an answer.

        An end that counts and arrived has deleted the episode. So one that this claim still holds
        after the connection broke did not arrive; after a timeout that proves nothing.
        """
        held: bool | None = None
        for pause in SILENT_PAUSES if outcome.timed_out else BROKEN_PAUSES:
            await asyncio.sleep(pause)
            held = await self._holds(holding)
            if holding.superseded:
                return (
                    GRANTED_AGAIN if holding.counts else _unknown("the server has granted it again")
                )
            if held is False:
                return _unknown(_NOT_HELD)
        if held is None:
            return _unknown(f"and the server does not report it: {outcome.text}")
        if holding.counts and not outcome.timed_out:
            return await self._send_again(holding, end)
        if self.holdings.is_set_aside(holding.uuid):
            return _unknown("the server may still process it")
        await self._abort_if_held(holding, "its end got no answer")
        return _unknown("it was given back")

    async def _holds(self, holding: Holding) -> bool | None:
        """Return whether this claim still holds its episode; None if the server does not say."""
        held = await self._held_of([holding])
        return None if held is None else bool(held)

    async def _held_of(self, holdings: Collection[Holding]) -> list[Holding] | None:
        """Return those of some claims that hold their episode; None if the server does not say.

        No claim is in flight meanwhile, which may be for one of them.
        """
        async with self.lock.alone():
            held = await self.held_by_server()
        if held is None:
            return None
        return [holding for holding in holdings if holding.uuid in held and not holding.superseded]

    async def held_by_server(self) -> set[str] | None:
        """Return the episodes that the server holds for this client; None if it does not answer."""
        try:
            return set(await _recorded(self._client))
        except SwarmError:
            return None

    @property
    def server_is_away(self) -> bool:
        """Whether the server did not answer the last poll."""
        seen = self._watcher.current
        return not seen.reachable and bool(seen.trouble)

    # --- aborts ---------------------------------------------------------------------------------

    async def abort(
        self, holdings: Collection[Holding], cause: str, *, active: bool = False
    ) -> set[str]:
        """Give back episodes, without waiting for a server that is not there.

        Claims that are superseded, or over already, are left out; what the server may have taken
        back is aborted only if its records show that this claim still holds it. An abort whose
        confirmation is missing is repeated later, by the same rule.

        Args:
            holdings: The claims.
            cause: Reason for the log.
            active: Count this client among those that agree on updates.

        Returns:
            The uuids that are given back.
        """
        leaving = {
            holding: self.holdings.leave(holding.uuid)
            for holding in holdings
            if not holding.left_by and not holding.superseded
        }
        if not leaving:
            return set()
        for holding in leaving:
            holding.left_by = "abort"
        return await self._to_its_end(self._abort(leaving, cause, active), "abort")

    async def _abort(
        self, leaving: "Mapping[Holding, asyncio.Future[None]]", cause: str, active: bool
    ) -> set[str]:
        doubtful = [each for each in leaving if may_be_taken(each, self.holdings.age(each))]
        given_back = [holding for holding in leaving if holding not in doubtful]
        sent: dict[str, asyncio.Future[None]] = {}
        try:
            if self.server_is_away:
                self.search_soon()
            else:
                if doubtful and (held := await self._held_of(doubtful)) is not None:
                    given_back += held
                elif doubtful:
                    self.search_soon()
                sent = {holding.uuid: leaving[holding] for holding in given_back}
                await self._send_aborts(sent, cause, active)
        finally:
            for holding, future in leaving.items():
                self.holdings.forget(holding)
                if holding.uuid not in sent:
                    self.holdings.left(holding.uuid, future)
        return {holding.uuid for holding in given_back}

    async def _abort_if_held(self, holding: Holding, cause: str) -> bool:
        """Give back an episode, if this claim still holds it, during its end.

        If the server does not say, the search for lost claims finds it once this end is over.
        """
        if not (held := await self._holds(holding)):
            if held is None:
                self.search_soon()
            return False
        await self._send_aborts(
            {holding.uuid: self.holdings.leave(holding.uuid)}, cause, active=False
        )
        return True

    async def give_back(self, uuids: Collection[str], cause: str = "") -> list[str]:
        """Abort episodes without a check; whoever is cancelled, they are aborted.

        Those whose end or abort is in flight are left out.

        Returns:
            Those that the server has not confirmed within `timeout` seconds.
        """
        work = self._send_aborts(self.holdings.leave_all(uuids), cause)
        failed = await self._to_its_end(work, "give back")
        return [uuid for uuid in uuids if self.holdings.in_flight(uuid) or uuid in failed]

    def return_soon(self, uuids: Sequence[str], cause: str) -> "asyncio.Task[list[str]]":
        """Give episodes back in the background; see `give_back`.

        Returns:
            A task that ends when the server has confirmed it, or after `timeout` seconds.
        """
        return self.tasks.spawn(
            self._send_aborts(self.holdings.leave_all(uuids), cause), "give back"
        )

    async def _send_aborts(
        self, aborts: "Mapping[str, asyncio.Future[None]]", cause: str, active: bool = False
    ) -> list[str]:
        """Abort episodes that are leaving; return those that failed within `timeout` seconds."""
        failed: list[str] = []

        async def send() -> None:
            done = await asyncio.gather(
                *(self._send_abort(uuid, leaving, active) for uuid, leaving in aborts.items())
            )
            failed.extend(uuid for uuid, ok in zip(aborts, done, strict=True) if not ok)
            if failed:
                log.warning("%d episodes not given back (%s), will try again", len(failed), cause)
                self.search_soon()

        if self.tasks.closing:
            try:
                async with asyncio.timeout(self.timeout):
                    await send()
            except TimeoutError:
                return list(aborts)
        else:
            await asyncio.wait({self.tasks.spawn(send(), "aborts")}, timeout=self.timeout)
        return failed

    async def _send_abort(self, uuid: str, leaving: "asyncio.Future[None]", active: bool) -> bool:
        """Abort an episode; return True if that is confirmed, or it was claimed again."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            outcome = await self._client.abort(
                uuid, declare_client_active=active, timeout=self.holdings.abort_timeout
            )
        finally:
            ours = self.holdings.left(uuid, leaving)
        if outcome is AbortKind.CONFIRMED or not ours:
            return True
        if outcome is AbortKind.UNKNOWN_OUTCOME:
            self.holdings.cut_off(uuid, clock() - began)
        return False

    async def _to_its_end(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work` to its end even if the caller is cancelled."""
        if self.tasks.closing:
            return await work
        result: T = await asyncio.shield(self.tasks.spawn(work, name))
        return result

    # --- lost claims ----------------------------------------------------------------------------

    async def reconcile(self) -> list[str]:
        """Give back the episodes that the server holds for this client by lost claims.

        A claim whose answer was lost may have been granted. What nobody here holds, and whose end
        or abort is not in flight, is given back. The records are as old as the request, and a claim
        in flight is not in them yet: so no claim is in flight while they are read, and what was
        known before the request counts as known.

        Returns:
            The uuids that are given back; some may not be confirmed yet.

        Raises:
            SwarmError: the server did not send its records, or did not confirm an abort.
        """
        async with self._reconciling:
            async with self.lock.alone():
                known = self.holdings.known()
                ours = await _recorded(self._client)
                known |= self.holdings.known()
            lost = [uuid for uuid in ours if uuid not in known]
            aborts = self.holdings.leave_all(lost)
            if aborts and await self._send_aborts(aborts, "lost claims"):
                raise SwarmError("an episode could not be given back", self._client.name)
            return lost

    def search_soon(self) -> None:
        """Search for lost claims in the background, and again after `search_again` seconds; once
        `tasks` is closed the next process has to do it."""
        self._search_wanted.set()
        if not (self._searching or self.tasks.closing):
            self._searching = True
            self.tasks.spawn(self._search(), "search for lost claims")

    async def _search(self) -> None:
        left = 0
        try:
            while self._search_wanted.is_set() or left:
                left = 2 if self._search_wanted.is_set() else left
                self._search_wanted.clear()
                await self._watcher.wait_for(lambda seen: seen.reachable)
                try:
                    await self.reconcile()
                except SwarmError as error:
                    log.warning("no search for lost claims yet: %s", error)
                    await asyncio.sleep(1.0)
                    continue
                left -= 1
                if self._closing and not self._search_wanted.is_set():
                    return
                if left:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self.search_again):
                            await self._search_wanted.wait()
        finally:
            self._searching = False

    # --- the end of this client -----------------------------------------------------------------

    async def close(self, seconds: float = 5.0) -> None:
        """Cancel ends, wait up to `seconds` for aborts and the search for lost claims, then stop.

        It does not wait for an unreachable server.
        """
        await self.sending.close()
        self._closing = True
        self._search_wanted.set()  # search at once instead of later
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            if await self.tasks.drain(min(left, STEP)) or not self._watcher.current.reachable:
                break
        self.holdings.close()
        await self.tasks.close()


async def _recorded(client: SwarmWire) -> list[str]:
    """Return the episodes of a client in the server's records.

    Raises:
        SwarmError: the server did not send its records.
    """
    records = await client.buffer(timeout=RECORDS_TIMEOUT)
    return [
        record.episode_uuid
        for record in records
        if record.claimed and record.client_uuid == client.client_uuid
    ]


def _unknown(text: str) -> EndOutcome:
    """Return the outcome of an end without an answer."""
    return EndOutcome(EndKind.UNKNOWN_OUTCOME, f"no answer came; {text}")


def _of_repeated(outcome: EndOutcome) -> EndOutcome:
    """Return the outcome of an end that was sent before, from that of its repetition."""
    if outcome.kind is EndKind.NOT_FOUND:
        return _unknown(_NOT_HELD)
    return _unknown(outcome.text) if outcome.kind is EndKind.UNREACHABLE else outcome
