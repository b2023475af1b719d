"""Refills a scored group that lacks candidates, at the request of the operator."""

import asyncio
from typing import Any

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import run_all
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from core.commands.refusal import NotNow
from core.events import CandidateFailed
from proxy.groups.claim import refill
from proxy.groups.generate import answered_candidate, incomplete, note_answer
from proxy.groups.run import Candidate, GroupRun, Refill
from proxy.groups.score import apply_scores, evaluate, record_abstention
from proxy.groups.submit import release
from proxy.rewards.source import Abstention, ScoreSheet
from proxy.servers.facts import has_lost_all

REPLY_WAIT = 20.0
"""Seconds that the command waits for the outcome."""
MIN_SECONDS = 0.5
"""Minimum number of seconds until the group has to be sealed."""


async def request_refill(run: GroupRun) -> str:
    """Request the candidates that `run` lacks, and wait up to `REPLY_WAIT` for the outcome.

    Raises:
        NotNow: The group is not short, cannot be refilled now, or no fresh candidate came.
    """
    check_refillable(run)
    pending = Refill(asyncio.get_running_loop().create_future())
    # The caller may no longer wait for the outcome: mark its exception as retrieved.
    pending.outcome.add_done_callback(lambda outcome: outcome.exception())
    run.refill = pending
    run.wake.set()
    assert run.task is not None
    futures: set[asyncio.Future[Any]] = {pending.outcome, run.task}
    await asyncio.wait(futures, timeout=REPLY_WAIT, return_when=asyncio.FIRST_COMPLETED)
    if pending.outcome.done():
        return pending.outcome.result()
    if run.task.done():
        raise NotNow(f"group {run.group_id} ended meanwhile")
    return f"group {run.group_id} is being refilled; its answers are not there yet"


def check_refillable(run: GroupRun) -> None:
    """Check that nothing that only the running group knows prevents a refill now.

    Raises:
        NotNow: It cannot be refilled; says why.
    """
    name = f"group {run.group_id}"
    if run.refill is not None:
        raise NotNow(f"{name} is being refilled already")
    if run.votes.accepted:
        raise NotNow(f"{name} is being sent")
    if _seconds_left(run) < MIN_SECONDS:
        raise NotNow(f"{name} has no time left for fresh candidates")


async def carry_out(run: GroupRun) -> None:
    """Claim, generate, and score all answers again; the task of the group waits meanwhile.

    Afterwards either the group has the fresh answers and rewards for all, or it is as before and
    the episodes claimed for it are returned.
    """
    pending = run.refill
    assert pending is not None
    slots = [one for one in run.candidates if one.answer is None]
    try:
        message = await _refill_in_time(run, pending, slots)
        if not pending.outcome.done():
            pending.outcome.set_result(f"group {run.group_id} {message}")
    except NotNow as error:
        if not pending.outcome.done():
            pending.outcome.set_exception(error)
    finally:
        run.refill = None


async def _refill_in_time(run: GroupRun, pending: Refill, slots: list[Candidate]) -> str:
    loop, remaining = run.loop, _seconds_left(run)
    scoring = min(run.context.settings.reward_limit, remaining / 2)
    budget = run.context.settings.proxy.stream_budget
    scope = asyncio.timeout_at(loop.time() + min(budget, remaining - scoring))

    def on_status(status: ServerStatus) -> None:
        if (status.down or has_lost_all(status)) and not scope.expired():
            scope.reschedule(loop.time())

    remove = run.facts.server.watcher.add_listener(on_status)
    try:
        async with scope:
            await run.returned()  # a slot is empty once its failed episode is returned
            await run_all(*(_fill(run, pending, candidate, scope.when()) for candidate in slots))
    except TimeoutError:
        pending.causes.append("no answer in time")
    finally:
        remove()
    await release(run, [one for one in slots if one.index not in pending.fresh], "not answered")
    if not pending.fresh:
        raise NotNow(f"group {run.group_id} got no fresh candidate: {_why(pending)}")
    return await _add_answers(run, pending, slots)


async def _fill(run: GroupRun, pending: Refill, slot: Candidate, until: float | None) -> None:
    """Get an episode and its answer for one slot; store the result in `pending` only."""
    assert until is not None
    if not await refill(run, slot, until):
        pending.causes.append("no episode was free")
        return
    started_at = run.loop.time()
    assert slot.claimed is not None
    client, headers = run.facts.server.client, {"X-Request-Id": run.request.request_id}
    try:
        body = run.request.encoded(slot.index)
        answer = await client.chat(slot.claimed, body, headers, until - started_at)
        if fault := incomplete(answer):
            raise ChatError(ChatErrorKind.UPSTREAM, fault)
    except ChatError as error:
        cause = f"{error.kind.value}: {error.text}" if error.text else error.kind.value
        slot.lost = slot.lost or error.kind in (ChatErrorKind.LOST_EPISODE, ChatErrorKind.BROKEN)
        _failed(run, pending, slot, cause)
        return
    slot.active_at = run.context.clock()
    note_answer(run, slot, answer)
    pending.fresh[slot.index] = answer
    pending.seconds[slot.index] = run.loop.time() - started_at


async def _add_answers(run: GroupRun, pending: Refill, slots: list[Candidate]) -> str:
    """Score the group with the fresh answers; keep them if that gives rewards, or if it had none
    before.

    Raises:
        NotNow: The rewards abstain with the fresh answers, which are removed and returned.
    """
    fresh = [one for one in slots if one.index in pending.fresh]
    for one in fresh:
        one.answer, one.seconds = pending.fresh[one.index], pending.seconds[one.index]
    run.refresh_usable()
    result: ScoreSheet | Abstention | None = None
    try:
        result = await evaluate(run)
    finally:
        if run.sheet is not None and not isinstance(result, ScoreSheet):
            for one in fresh:
                one.answer = None
            run.refresh_usable()
    if isinstance(result, Abstention) and run.sheet is not None:
        for one in fresh:
            _failed(run, pending, one, f"the rewards abstain with it: {result.cause}")
        await release(run, fresh, "the rewards abstain with it")
        raise NotNow(f"group {run.group_id} stays as it was: {_why(pending)}")
    for one in fresh:
        one.error = ""
        answer = pending.fresh[one.index]
        run.events.add(answered_candidate(one, answer, answer.message))
    run.events.flush()
    if isinstance(result, ScoreSheet):
        apply_scores(run, result)
    else:
        record_abstention(run, result)
    more = f"; {_why(pending)}" if len(run.usable) < run.n else ""
    return f"has {len(run.usable)} of {run.n} candidates now and is scored again{more}"


def _failed(run: GroupRun, pending: Refill, slot: Candidate, cause: str) -> None:
    pending.causes.append(cause)
    run.events.flush()  # the event of the claim comes first
    run.context.bus.publish(
        CandidateFailed(
            server=run.facts.server.name,
            group_id=run.group_id,
            index=slot.index,
            episode_uuid=slot.uuid,
            cause=cause,
        )
    )


def _why(pending: Refill) -> str:
    return ", ".join(dict.fromkeys(pending.causes)) or "no answer"


def _seconds_left(run: GroupRun) -> float:
    """Return the seconds until the group has to be sealed."""
    return run.clock - run.context.clock()
