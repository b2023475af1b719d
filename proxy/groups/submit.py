"""Ends and aborts episodes.

Ends run in parallel and are never repeated without proof that the first one did not arrive. An
abort is sent without a check only while the episode is certainly ours: the server does not check
who sends it.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from ajet_swarm.api.outcomes import EndKind, EndOutcome
from ajet_swarm.common.tasks import TaskBatch
from ajet_swarm.http.pending import PendingCall, wait_all
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import WireOutput
from core.bus import Bus
from core.events import EpisodeAborted, EpisodeEnded
from proxy.context import ServerHandle
from proxy.groups.run import Candidate, GroupRun

log = logging.getLogger(__name__)

LOOK_AGAIN = (0.0, 0.5, 1.5, 4.0)
"""Seconds between checks of the buffer after an end with an unknown outcome: the server may still
be processing it."""
TAKEN = frozenset({"ended", "recorded"})
"""Outcomes of a reward that has arrived."""
REACH_FOR = 60.0
"""Seconds that an end which was never sent waits for the server to return."""


_WELL = {EndKind.ENDED: "ended", EndKind.RECORDED: "recorded"}


async def episodes_held(server: ServerHandle) -> set[str] | None:
    """Return the episodes that the server holds as claimed by us; None if it does not answer."""
    try:
        records = await server.client.buffer()
    except SwarmError:
        return None
    me = server.client.client_uuid
    return {one.episode_uuid for one in records if one.claimed and one.client_uuid == me}


# --- giving back -------------------------------------------------------------------------------


async def release(run: GroupRun, candidates: Iterable[Candidate], reason: str) -> None:
    """Return the episodes of these candidates; what cannot be returned now is swept later.

    Episodes that may no longer be ours are looked up first.
    """
    run.episode_events.flush()
    mine = [one for one in candidates if one.uuid]
    late = run.context.clock() - run.discard_timeout
    doubtful = {one.uuid for one in mine if one.lost or one.active_at < late}
    sure = [one.uuid for one in mine if one.uuid not in doubtful and not one.superseded]
    doubtful -= {one.uuid for one in mine if one.superseded}
    for one in mine:
        one.lost = True  # when this is cut short, whoever tries again looks first
    server = run.facts.server
    why = "the server had taken it back"
    if not server.watcher.current.reachable:  # nobody waits for that
        why = "the server is not there"
        sure, doubtful = [], set()
        run.facts.sweep_soon()
    if doubtful:
        found = await episodes_held(server)
        if found is None:
            run.needs_sweep = True
        else:
            sure += [uuid for uuid in doubtful if uuid in found]
    await server.claimer.give_back(sure, reason)
    for one in mine:
        uuid = one.uuid
        run.release_place(one)
        told = reason if uuid in sure else f"{reason} ({why})"
        run.context.bus.publish(
            EpisodeAborted(
                server=server.name,
                group_id=run.group_id,
                index=one.index,
                episode_uuid=uuid,
                reason=told,
            )
        )


# --- ending ------------------------------------------------------------------------------------


class PendingReward(msgspec.Struct, frozen=True):
    """One reward to send."""

    group_id: str
    index: int
    uuid: str
    reward: float
    task_id: str
    output: WireOutput
    active_at: float
    """Unix seconds of its last call; 0 if unknown."""
    claimed_at: float
    discard_timeout: float


async def submit(run: GroupRun, rewards: dict[int, float]) -> list[str]:
    """Send the sealed rewards, all at once.

    Returns:
        One outcome for each reward, as in `EpisodeEnded`.
    """
    server, now, crew = run.facts.server, run.context.clock(), TaskBatch(run.loop)
    outcomes: list[str] = []
    begun: list[PendingCall[EndOutcome]] = []
    sent: list[tuple[Candidate, PendingReward]] = []

    def heard(index: int) -> None:
        outcome, (one, ending) = begun[index].result(), sent[index]
        well = _WELL.get(outcome.kind)
        if well is not None:
            outcomes.append(_tell(run, one, ending, well, ""))
        else:
            crew.add(_end_and_tell(run, one, ending, outcome))

    for one in run.usable:
        if not one.uuid:
            continue
        ending = _ending(run, one, rewards[one.index])
        call = None
        if not (one.superseded or _is_late(ending, now)):
            call = server.client.begin_end(ending.uuid, ending.task_id, ending.output)
        if call is None:
            crew.add(_end_and_tell(run, one, ending))
        else:
            begun.append(call)
            sent.append((one, ending))
    try:
        if begun:
            await wait_all(begun, heard)
    except BaseException:
        await crew.cancel()
        raise
    return outcomes + await crew.results() if crew else outcomes


def _ending(run: GroupRun, one: Candidate, reward: float) -> PendingReward:
    assert one.claimed is not None
    return PendingReward(
        group_id=run.group_id,
        index=one.index,
        uuid=one.uuid,
        reward=reward,
        task_id=run.task_id,
        output=WireOutput(reward=reward, metadata=run.metadata),
        active_at=one.active_at,
        claimed_at=one.claimed.at,
        discard_timeout=run.discard_timeout,
    )


async def _end_and_tell(
    run: GroupRun, one: Candidate, ending: PendingReward, first: EndOutcome | None = None
) -> str:
    """Send one reward with retries and checks; `first` is the outcome of an attempt just before."""
    if one.superseded:
        outcome, text = "expired", "the server had taken it back; another candidate has it now"
    else:
        outcome, text = await end(run.facts.server, ending, run.context.clock(), first)
    return _tell(run, one, ending, outcome, text)


def _tell(run: GroupRun, one: Candidate, ending: PendingReward, outcome: str, text: str) -> str:
    run.episode_events.ended(ending.index, ending.uuid, ending.reward, outcome, text)
    run.rewards_taken += outcome in TAKEN
    run.release_place(one)
    run.needs_sweep = run.needs_sweep or outcome in ("unknown", "refused")
    return outcome


def publish_end(bus: Bus, server: str, ending: PendingReward, outcome: str, text: str) -> None:
    """Publish the outcome of one reward."""
    bus.publish(
        EpisodeEnded(
            server=server,
            group_id=ending.group_id,
            index=ending.index,
            episode_uuid=ending.uuid,
            reward=ending.reward,
            outcome=outcome,
            text=text,
        )
    )


def _is_late(ending: PendingReward, now: float) -> bool:
    """Return whether the server may have reclaimed the episode."""
    limit = ending.discard_timeout
    if ending.claimed_at and now > ending.claimed_at + 2 * limit:
        return True
    return bool(ending.active_at) and now > ending.active_at + limit


async def end(
    server: ServerHandle, ending: PendingReward, now: float, first: EndOutcome | None = None
) -> tuple[str, str]:
    """Send one reward, unless it is too late.

    Args:
        server: The server of the episode.
        ending: The reward.
        now: Unix seconds.
        first: The outcome of an attempt just before.

    Returns:
        The outcome (ended, expired, refused or unknown) and the reason for people.
    """
    limit = ending.discard_timeout
    if ending.claimed_at and now > ending.claimed_at + 2 * limit:
        await _abort_if_ours(server, ending.uuid)
        return "expired", f"more than {2 * limit:g} s after its claim: aborted"
    late = ending.active_at and now > ending.active_at + limit
    if late and await server.client.can_continue(ending.uuid) is False:
        return "expired", "the server had taken the episode back"
    outcome = first
    if outcome is None or outcome.kind is EndKind.UNREACHABLE:
        outcome = await _send_when_it_can(server, ending)
    if outcome.kind is EndKind.ERROR and ending.uuid in (await episodes_held(server) or ()):
        outcome = await _send(server, ending)  # it failed before it took the reward: once more
    if outcome.kind is EndKind.UNKNOWN_OUTCOME:
        return await _resolve(server, ending, outcome)
    return await _judge(server, ending, outcome)


async def _send_when_it_can(server: ServerHandle, ending: PendingReward) -> EndOutcome:
    """Send it; while it certainly did not leave, wait for the server and try again."""
    until = 0.0
    while True:
        outcome = await _send(server, ending)
        if outcome.kind is not EndKind.UNREACHABLE:
            return outcome
        until = until or asyncio.get_running_loop().time() + REACH_FOR
        try:
            async with asyncio.timeout_at(until):
                await server.watcher.refresh()
                await server.watcher.wait_for(lambda seen: seen.reachable)
        except TimeoutError:
            return outcome


async def _send(server: ServerHandle, ending: PendingReward) -> EndOutcome:
    return await server.client.end(ending.uuid, ending.task_id, ending.output)


async def _judge(
    server: ServerHandle, ending: PendingReward, outcome: EndOutcome
) -> tuple[str, str]:
    match outcome.kind:
        case EndKind.ENDED:
            return "ended", ""
        case EndKind.RECORDED:
            return "recorded", ""
        case EndKind.NOT_CLAIMED | EndKind.OTHER_CLIENT:
            return "expired", outcome.text
        case EndKind.UNKNOWN_OUTCOME:
            return "unknown", outcome.text
        case EndKind.UNREACHABLE:
            return "refused", f"never sent: {outcome.text}"
        case EndKind.ERROR:
            await _abort_if_ours(server, ending.uuid)
            return "refused", outcome.text
        case _:
            return "refused", outcome.text


async def _resolve(
    server: ServerHandle, ending: PendingReward, outcome: EndOutcome
) -> tuple[str, str]:
    """Find the outcome of an end without a response.

    An episode that left the buffer was most likely ended; one that is still ours never was.
    """
    held: set[str] | None = None
    for pause in LOOK_AGAIN:
        await asyncio.sleep(pause)
        held = await episodes_held(server)
        if held is not None and ending.uuid not in held:
            return "unknown", "no answer came; the server no longer holds the episode"
    if held is None:
        return "unknown", f"no answer came, and the server does not say: {outcome.text}"
    return await _judge(server, ending, await _send(server, ending))


async def _abort_if_ours(server: ServerHandle, uuid: str) -> None:
    held = await episodes_held(server)
    if held is not None and uuid in held:
        await server.claimer.give_back([uuid], "not ended")


__all__ = ["PendingReward", "end", "episodes_held", "publish_end", "release", "submit"]
