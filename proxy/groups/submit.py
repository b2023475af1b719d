"""Ends and aborts episodes.

Ends run in parallel and are never repeated without proof that the first one did not arrive. While
an end is in flight, nothing aborts its episode. An abort is sent without a check only while we
certainly hold the episode: the server does not check who sends it.

An episode keeps its uuid when it returns to the pool, so the records of the server do not prove
that it is still the episode of this candidate: another one of ours may have claimed it since. So
nothing is sent for a superseded candidate, and the end of an eval episode, which returns it to the
pool, is never repeated.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from ajet_swarm.api.outcomes import EndKind, EndOutcome
from ajet_swarm.api.wire import RUNNER
from ajet_swarm.common.tasks import run_all
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import WireOutput
from core.bus import Bus
from core.events import EndedEpisode, EpisodeAborted, EpisodesEnded
from proxy.context import ServerHandle
from proxy.groups.run import Candidate, Run
from proxy.servers.facts import EpisodeOwner

log = logging.getLogger(__name__)

END_TIMEOUT = RUNNER
"""Timeout in seconds of an end."""
END_IN_FLIGHT = 5.0
"""Seconds after which a server has processed an end whose connection broke at once, or an end of a
killed proxy."""
RECHECK_PAUSES = (0.0, 0.5, 1.5, 4.0)
"""Seconds between checks of the buffer after an end whose connection broke: the server may still be
processing it."""
SLOW_PAUSES = (0.0, 5.0, 10.0, 15.0, 30.0)
"""The same after an end without an answer in `END_TIMEOUT`: the server was frozen, or is slow."""
NOT_HELD = "no answer came; the server no longer holds the episode"
SUPERSEDED = "the server had taken it back; another candidate has it now"
ACCEPTED = frozenset({"ended", "recorded"})
"""Outcomes of a reward that the server has accepted."""
RECONNECT_WAIT = 60.0
"""Seconds to wait for the server to return while an end could not be sent."""


async def episodes_held(server: ServerHandle) -> set[str] | None:
    """Return the episodes that the server holds as claimed by us; None if it does not answer."""
    try:
        records = await server.client.buffer()
    except SwarmError:
        return None
    me = server.client.client_uuid
    return {one.episode_uuid for one in records if one.claimed and one.client_uuid == me}


async def _certainly_held(server: ServerHandle) -> set[str] | None:
    """Return `episodes_held` while no claim is in flight, which may be for one of them.

    The owners of the episodes are up to date then: see `EpisodeOwner.superseded`.
    """
    async with server.claimer.releaser.lock:
        return await episodes_held(server)


async def _is_superseded(server: ServerHandle, owner: EpisodeOwner) -> bool:
    """Return whether another owner has claimed the episode; wait for the claims in flight."""
    async with server.claimer.releaser.lock:
        return owner.superseded


# --- returning ---------------------------------------------------------------------------------


async def release(run: Run, candidates: Iterable[Candidate], reason: str) -> None:
    """Return the episodes of these candidates; a later sweep returns those that cannot be now.

    Episodes that we may no longer hold are looked up first. One whose end is in flight is not
    aborted.
    """
    run.events.flush()
    every = [one for one in candidates if one.uuid]
    holding = [one for one in every if not one.ending]
    late = run.context.clock() - run.slots.discard_timeout
    doubtful = {one.uuid for one in holding if one.lost or one.active_at < late}
    certain = [one.uuid for one in holding if one.uuid not in doubtful and not one.superseded]
    doubtful -= {one.uuid for one in holding if one.superseded}
    for one in holding:
        one.lost = True  # if this is cancelled, the next attempt checks first
    server = run.facts.server
    why = "the server had taken it back"
    if not server.watcher.current.reachable:  # do not wait for it
        why = "the server is not there"
        certain, doubtful = [], set()
        server.claimer.releaser.sweep_soon()
    if doubtful:
        held = await _certainly_held(server)
        if held is None:
            run.slots.needs_sweep = True
        else:
            doubtful -= {one.uuid for one in holding if one.superseded}
            certain += [uuid for uuid in doubtful if uuid in held]
    await server.claimer.give_back(certain, reason)
    for one in every:
        uuid = one.uuid
        if one.ending and not one.superseded and not server.claimer.releaser.spares(uuid):
            server.claimer.releaser.spare(uuid, END_IN_FLIGHT)
        run.slots.release(one)
        full_reason = reason if uuid in certain else f"{reason} ({why})"
        if one.ending:
            full_reason = f"{reason} (its end may have arrived)"
        run.context.bus.publish(
            EpisodeAborted(
                server=server.name,
                group_id=run.group_id,
                index=one.index,
                episode_uuid=uuid,
                reason=full_reason,
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
    owner: EpisodeOwner
    """Nothing is sent once it is superseded."""
    kind: str = "train"
    """`train` or `eval`."""


async def submit(run: Run, rewards: dict[int, float]) -> list[str]:
    """Send the sealed rewards, all at once.

    Returns:
        One outcome for each reward, as in `EndedEpisode`.
    """
    return await run_all(
        *(_end_and_record(run, one, rewards[one.index]) for one in run.slots.usable if one.uuid)
    )


def _ending(run: Run, one: Candidate, reward: float) -> PendingReward:
    assert one.claimed is not None
    return PendingReward(
        group_id=run.group_id,
        index=one.index,
        uuid=one.uuid,
        reward=reward,
        task_id=run.task.id,
        output=WireOutput(reward=reward, metadata=run.task.metadata),
        active_at=one.active_at,
        claimed_at=one.claimed.at,
        discard_timeout=run.slots.discard_timeout,
        owner=one,
        kind=run.task.kind,
    )


async def _end_and_record(run: Run, candidate: Candidate, reward: float) -> str:
    """Send one reward with retries and checks; return its outcome."""
    ending = _ending(run, candidate, reward)
    outcome, text = await end(run.facts.server, ending, run.context.clock())
    run.events.add(_ended(ending, outcome, text))
    run.slots.release(candidate)
    run.slots.needs_sweep = run.slots.needs_sweep or outcome in ("unknown", "refused")
    return outcome


def _ended(ending: PendingReward, outcome: str, text: str) -> EndedEpisode:
    return EndedEpisode(ending.index, ending.uuid, ending.reward, outcome, text)


def publish_end(bus: Bus, server: str, ending: PendingReward, outcome: str, text: str) -> None:
    """Publish the outcome of one reward."""
    bus.publish(
        EpisodesEnded(
            server=server, group_id=ending.group_id, episodes=(_ended(ending, outcome, text),)
        )
    )


async def end(
    server: ServerHandle,
    ending: PendingReward,
    now: float,
    *,
    sent_before: bool = False,
) -> tuple[str, str]:
    """Send one reward, unless it is too late.

    Args:
        server: The server of the episode.
        ending: The reward.
        now: Unix seconds.
        sent_before: A process that was killed may have sent it; the server may still process that.

    Returns:
        The outcome (ended, recorded, expired, refused or unknown) and the reason as text.
    """
    if late := await _why_expired(server, ending, now):
        return "expired", late
    outcome = await _send_when_reachable(server, ending)
    may_repeat = outcome.kind is EndKind.ERROR and ending.kind != "eval"
    if may_repeat and ending.uuid in (await episodes_held(server) or ()):
        # The server failed before it accepted the reward.
        outcome = await _send_again(server, ending)
    if sent_before:
        outcome = _if_repeated(outcome)
    if outcome.kind is EndKind.UNKNOWN_OUTCOME:
        return await _resolve(server, ending, outcome)
    return await _outcome_of(server, ending, outcome)


async def _why_expired(server: ServerHandle, ending: PendingReward, now: float) -> str:
    """Return why it is too late for a reward; empty if it is not. Abort what is too old."""
    limit = ending.discard_timeout
    if ending.claimed_at and now > ending.claimed_at + 2 * limit:
        await _abort_if_ours(server, ending)
        return f"more than {2 * limit:g} s after its claim: aborted"
    if ending.active_at and now > ending.active_at + limit:
        if await server.client.can_continue(ending.uuid) is False:
            return "the server had taken the episode back"
        if await _is_superseded(server, ending.owner):
            return SUPERSEDED
    return ""


async def _send_when_reachable(server: ServerHandle, ending: PendingReward) -> EndOutcome:
    """Send one reward; if it certainly was not sent, wait for the server and try again."""
    until = 0.0
    while True:
        outcome = await _send(server, ending)
        if outcome.kind is not EndKind.UNREACHABLE:
            return outcome
        until = until or asyncio.get_running_loop().time() + RECONNECT_WAIT
        try:
            async with asyncio.timeout_at(until):
                await server.watcher.refresh()
                await server.watcher.wait_for(lambda status: status.reachable)
        except TimeoutError:
            return outcome
        if await _is_superseded(server, ending.owner):
            return EndOutcome(EndKind.NOT_CLAIMED, SUPERSEDED)


async def _send(server: ServerHandle, ending: PendingReward) -> EndOutcome:
    if ending.owner.superseded:
        return EndOutcome(EndKind.NOT_CLAIMED, SUPERSEDED)
    ending.owner.ending = True
    releaser, clock = server.claimer.releaser, asyncio.get_running_loop().time
    began = clock()
    try:
        outcome = await server.client.end(
            ending.uuid, ending.task_id, ending.output, timeout=END_TIMEOUT
        )
    except asyncio.CancelledError:  # the server goes on with it
        if not ending.owner.superseded:
            releaser.spare(ending.uuid, END_TIMEOUT - (clock() - began))
        raise
    ending.owner.ending = outcome.kind is not EndKind.UNREACHABLE
    if outcome.kind is EndKind.UNKNOWN_OUTCOME and not ending.owner.superseded:
        releaser.spare_cut_off(ending.uuid, clock() - began)
    return outcome


async def _send_again(server: ServerHandle, ending: PendingReward) -> EndOutcome:
    """Send one reward once more, though the first request may still arrive.

    If the server processes that one in between, the outcome is unknown, not refused.
    """
    if await _is_superseded(server, ending.owner):
        return EndOutcome(EndKind.NOT_CLAIMED, SUPERSEDED)
    return _if_repeated(await _send(server, ending))


def _if_repeated(outcome: EndOutcome) -> EndOutcome:
    """Return the outcome of an end that was sent before, from that of its repetition."""
    if outcome.kind is EndKind.NOT_FOUND:
        return msgspec.structs.replace(outcome, kind=EndKind.UNKNOWN_OUTCOME, text=NOT_HELD)
    return outcome


async def _outcome_of(
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
            if ending.kind != "eval":  # else the sweep, during which no claim is in flight
                await _abort_if_ours(server, ending)
            return "refused", outcome.text
        case _:
            return "refused", outcome.text


async def _resolve(
    server: ServerHandle, ending: PendingReward, outcome: EndOutcome
) -> tuple[str, str]:
    """Find the outcome of an end without a response.

    An episode that left the buffer was most likely ended; a train episode that this candidate still
    holds after the connection broke was not. After a timeout that proves nothing, and the end is
    not repeated.
    """
    held: set[str] | None = None
    for pause in SLOW_PAUSES if outcome.timed_out else RECHECK_PAUSES:
        await asyncio.sleep(pause)
        held = await episodes_held(server)
        if held is not None and ending.uuid not in held:
            return "unknown", NOT_HELD
        if ending.owner.superseded:
            return ("unknown", NOT_HELD) if ending.kind == "eval" else ("expired", SUPERSEDED)
    if held is None:
        return "unknown", f"no answer came, and the server does not say: {outcome.text}"
    if ending.kind == "eval":
        return "unknown", f"no answer came; not sent again, as it is not trained on: {outcome.text}"
    if outcome.timed_out:
        return "unknown", f"no answer came: {outcome.text}"
    return await _outcome_of(server, ending, await _send_again(server, ending))


async def _abort_if_ours(server: ServerHandle, ending: PendingReward) -> None:
    held = await _certainly_held(server)
    if held is not None and ending.uuid in held and not ending.owner.superseded:
        await server.claimer.give_back([ending.uuid], "not ended")


__all__ = ["PendingReward", "end", "episodes_held", "publish_end", "release", "submit"]
