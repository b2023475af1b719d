"""Claims the episodes of a run, all or none, and fresh ones for failed ones."""

from collections.abc import Sequence
from functools import partial

from core.events import ClaimIntended, ClaimsReturned
from proxy.groups.run import Candidate, Run
from proxy.servers.reader import identified

REFILL_WAIT = 10.0
"""Maximum number of seconds that a group waits for a fresh episode while it holds others; a longer
wait would starve other groups."""


async def claim(run: Run, *, durable: bool = True) -> None:
    """Claim all episodes of the run, or none.

    Args:
        run: Its candidates are reset.
        durable: Commit the intent first. The commit puts the open group on file: after a kill the
            next start lets claims wait for its clean-up and names it in an alert. A server that
            keeps no episodes needs none. Pass False while the journal is broken: then the run is
            not trained on, and the next start finds its episodes at the server.

    Raises:
        ClaimTimedOut: The episodes were not free before the deadline of the run; none is held.
        JournalError: The intent could not be committed; nothing was claimed.
    """
    run.slots.reset()
    server = run.facts.server
    await identified(server)

    async def intend() -> None:
        event = ClaimIntended(
            server=server.name,
            group_id=run.group_id,
            n=run.slots.n,
            discard_timeout=run.slots.discard_timeout,
        )
        if durable:
            await run.context.bus.publish_committed(event)
        else:
            run.context.bus.publish(event)

    claimed = await server.claimer.claim_group(
        run.slots.n,
        episode_type=run.task.kind,
        discard_timeout=run.slots.discard_timeout,
        deadline=lambda: run.deadline,
        entry=run.entry,
        on_intent=intend if server.intent_is_durable else None,
        on_claimed=partial(_record_claim, run),
        on_returned=lambda uuids, cause: _record_return(run, uuids, cause),
    )
    run.events.flush()
    by_uuid = {episode.episode_uuid: episode for episode in claimed}
    for candidate in run.slots.candidates:
        candidate.claimed = by_uuid[candidate.uuid]
        candidate.active_at = candidate.claimed.at
    run.slots.first_claim_at = min([episode.at for episode in claimed])


async def refill_slot(run: Run, candidate: Candidate, deadline: float) -> bool:
    """Claim a fresh episode for one slot of a group that holds others.

    Args:
        run: The group.
        candidate: The slot; it holds no episode.
        deadline: On the clock of the loop.

    Returns:
        False if none was free in time, or the engine is not rolling.
    """
    claimed = await run.facts.server.claimer.refill(
        episode_type=run.task.kind,
        discard_timeout=run.slots.discard_timeout,
        deadline=min(deadline, run.clocks.loop.time() + REFILL_WAIT),
        on_claimed=lambda uuid: _record_claim(run, uuid, candidate),
        on_returned=lambda uuids, cause: _record_return(run, uuids, cause),
    )
    if claimed is None:
        return False
    candidate.claimed = claimed
    candidate.active_at = claimed.at
    return True


def _record_claim(run: Run, uuid: str, slot: Candidate | None = None) -> None:
    if run.closing or (slot is not None and not _is_empty(run, slot)):
        return  # the answer is late: the claimer returns the episode, and no group held it
    is_first = slot is None
    slot = slot or next(candidate for candidate in run.slots.candidates if not candidate.uuid)
    run.slots.record_claim(slot, uuid)
    slot.step = slot.claimed_step = run.facts.server.watcher.current.step
    slot.later_step = None
    slot.training_run = run.context.bus.state.run_of(run.facts.server.name)
    run.events.claimed(slot)
    if is_first and all(candidate.uuid for candidate in run.slots.candidates):
        expires_at = run.context.clock() + run.slots.discard_timeout
        run.events.flush(expires_at, run.facts.server.info.damping)


def _is_empty(run: Run, slot: Candidate) -> bool:
    """Return whether a refill may fill a slot; a later refill or claim may have done so."""
    return not slot.uuid and any(candidate is slot for candidate in run.slots.candidates)


def _record_return(run: Run, uuids: Sequence[str], cause: str) -> None:
    slots = [candidate for candidate in run.slots.candidates if candidate.uuid in uuids]
    if not slots:
        return
    run.events.flush()
    for candidate in slots:
        run.slots.release(candidate)
        candidate.attempt = 0
    run.context.bus.publish(
        ClaimsReturned(
            server=run.facts.server.name,
            group_id=run.group_id,
            episode_uuids=tuple(uuids),
            cause=cause,
        )
    )
    if not run.closing:  # its place is free once the server has confirmed the returns
        ends = run.facts.server.claimer.ends
        run.slots.give_back(ends.holdings.returned(uuids, ends.timeout))
