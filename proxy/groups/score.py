"""Turns the answers of a run into rewards, or into the reason why there are none.

A group that waits is scored again when the operator wants it, and an unscored one each time that
the rewards work again. A group that lacks answers gets fresh ones at the operator's request, and is
scored again with them.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import Tasks, run_all
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.errors import ChatError
from core.commands.spec import NotNow
from core.events import CandidateFailed, GroupScored, ScoringAbstained
from proxy.groups.claim import refill_slot, release
from proxy.groups.generate import MAYBE_GONE, answered_candidate, ask
from proxy.groups.run import Candidate, Refill, Run
from proxy.rewards.source import (
    Abstention,
    Answer,
    GroupContext,
    Listener,
    ScoreSheet,
    SourceHealth,
    request_scores,
)
from proxy.servers.facts import has_lost_all

log = logging.getLogger(__name__)

REPLY_WAIT = 20.0
"""Seconds that the command waits for the outcome."""
MIN_SECONDS = 0.5
"""Minimum number of seconds until the group has to be sealed."""


async def evaluate(run: Run) -> ScoreSheet | Abstention:
    """Return the scores of the usable candidates now; change nothing.

    Never raises for an error in a source, and never takes much longer than its time limit.
    """
    row = run.task.row
    context = GroupContext(
        group_id=run.group_id,
        request_id=run.request.request_id,
        task_id=run.task.id,
        query=run.request.query,
        messages=run.request.shown or run.request.messages,
        metadata=run.task.metadata,
        reference=row.reference if row is not None else None,
        answers=tuple(
            [
                Answer(
                    index=slot.index,
                    message=slot.answer.message,
                    finish_reason=slot.answer.finish_reason,
                    episode_uuid=slot.uuid,
                    seconds=slot.seconds,
                    completion=slot.answer.parsed,
                )
                for slot in run.slots.usable
                if slot.answer is not None
            ]
        ),
        tools=tools if isinstance(tools := run.request.body.get("tools"), list) else (),
    )
    limit = run.context.settings.reward_limit
    return await request_scores(run.context.rewards, context, limit)


def record(run: Run, result: ScoreSheet | Abstention) -> None:
    """Set the scores of the group, or record that it has none."""
    scores, server = run.scores, run.facts.server.name
    scores.at = run.context.clock()
    if isinstance(result, Abstention):
        scores.abstained = one_line(f"{result.part}: {result.cause}", 300)
        run.context.bus.publish(
            ScoringAbstained(
                server=server,
                group_id=run.group_id,
                part=result.part,
                cause=result.cause,
                traceback=result.traceback,
                file=result.file,
                line=result.line,
                late=result.late,
            )
        )
        return
    scores.sheet, scores.abstained = result, ""
    scores.rewards = {score.index: score.reward for score in result.scores}
    best = run.best()
    run.context.bus.publish(
        GroupScored(
            server=server,
            group_id=run.group_id,
            scores=result.scores,
            best=best.index if best is not None else 0,
            version=result.version,
            seconds=result.seconds,
        )
    )


# --- again ---------------------------------------------------------------------------------------


async def rescore(run: Run) -> None:
    """Score the answers again and replace the old rewards.

    Raises:
        NotNow: The group is being refilled or was finished meanwhile, or the rewards abstain.
            Nothing has changed then.
    """
    if run.refill is not None:
        raise NotNow(f"group {run.group_id} is being refilled: it is scored again with that")
    sheet = await evaluate(run)
    if run.sealed or run.closing:
        raise NotNow(f"group {run.group_id} was finished meanwhile")
    if isinstance(sheet, Abstention):
        raise NotNow(
            f"the rewards abstain from group {run.group_id} ({sheet.part}: {sheet.cause})",
            todo="It stays as it is: correct the rewards, or rate it by hand",
        )
    if [slot.index for slot in run.slots.usable] != sorted(score.index for score in sheet.scores):
        raise NotNow(f"group {run.group_id} was refilled meanwhile, and scored with that")
    record(run, sheet)
    run.wake.set()


def rescoring(runs: Mapping[str, Run], tasks: Tasks) -> Listener:
    """Return a listener that scores unscored open groups again once the rewards work.

    Args:
        runs: The open groups.
        tasks: Owner of the tasks.
    """

    def changed(health: SourceHealth) -> None:
        if health.ok:
            for run in runs.values():
                unscored = run.phase == "AWAITING_RATING" and run.scores.sheet is None
                if unscored and run.scores.tried != health.version:  # once for each version
                    run.scores.tried = health.version
                    tasks.spawn(_try_again(run), f"rescore:{run.group_id}")

    return changed


async def _try_again(run: Run) -> None:
    try:
        await rescore(run)
    except NotNow as error:  # the new version abstains too, or the group has ended
        log.info("not scored again: %s", error)


# --- fresh answers -------------------------------------------------------------------------------


async def request_refill(run: Run) -> str:
    """Request the candidates that `run` lacks, and wait up to `REPLY_WAIT` for the outcome.

    Raises:
        NotNow: The group is not short, cannot be refilled now, or no fresh candidate came.
    """
    check_refillable(run)
    pending = Refill(run.clocks.loop.create_future(), [])
    # The caller may no longer wait for the outcome: mark its exception as retrieved.
    pending.outcome.add_done_callback(lambda outcome: outcome.exception())
    run.refill = pending
    run.wake.set()
    assert run.work is not None
    futures: set[asyncio.Future[Any]] = {pending.outcome, run.work}
    await asyncio.wait(futures, timeout=REPLY_WAIT, return_when=asyncio.FIRST_COMPLETED)
    if pending.outcome.done():
        return pending.outcome.result()
    if run.work.done():
        raise NotNow(f"group {run.group_id} ended meanwhile")
    return f"group {run.group_id} is being refilled; its answers are not there yet"


def check_refillable(run: Run) -> None:
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


async def carry_out(run: Run) -> None:
    """Claim, generate, and score all answers again; the task of the group waits meanwhile.

    Afterwards either the group has the fresh answers and rewards for all, or it is as before and
    the episodes claimed for it are returned.
    """
    refill = run.refill
    assert refill is not None
    try:
        message = await _refilled(run, refill.causes)
        if not refill.outcome.done():
            refill.outcome.set_result(f"group {run.group_id} {message}")
    except NotNow as error:
        if not refill.outcome.done():
            refill.outcome.set_exception(error)
    finally:
        run.refill = None


async def _refilled(run: Run, causes: list[str]) -> str:
    slots, loop, remaining = run.slots, run.clocks.loop, _seconds_left(run)
    gaps = [slot for slot in slots.candidates if slot.answer is None]
    scoring = min(run.context.settings.reward_limit, remaining / 2)
    budget = run.context.settings.proxy.stream_budget
    scope = asyncio.timeout_at(loop.time() + min(budget, remaining - scoring))

    def on_status(status: ServerStatus) -> None:
        if (status.down or has_lost_all(status)) and not scope.expired():
            scope.reschedule(loop.time())

    remove = run.facts.server.watcher.add_listener(on_status)
    try:
        async with scope:
            await slots.returned()  # a slot is empty once its failed episode is returned
            await run_all(*(_fill(run, slot, scope.when(), causes) for slot in gaps))
    except TimeoutError:
        causes.append("no answer in time")
    finally:
        remove()
    fresh = [slot for slot in gaps if slot.answer is not None]
    await release(run, [slot for slot in gaps if slot.answer is None], "not answered")
    if not fresh:
        raise NotNow(f"group {run.group_id} got no fresh candidate: {_listed(causes)}")
    result = await evaluate(run)
    if isinstance(result, Abstention) and run.scores.sheet is not None:
        for slot in fresh:
            slots.set_answer(slot, None)
            _failed(run, slot, f"the rewards abstain with it: {result.cause}", causes)
        await release(run, fresh, "the rewards abstain with it")
        raise NotNow(f"group {run.group_id} stays as it was: {_listed(causes)}")
    for slot in fresh:
        slot.error = ""
        run.events.add(answered_candidate(slot))
    run.events.flush()
    record(run, result)
    answered = len(slots.usable)
    more = f"; {_listed(causes)}" if answered < slots.n else ""
    return f"has {answered} of {slots.n} candidates now and is scored again{more}"


async def _fill(run: Run, slot: Candidate, until: float | None, causes: list[str]) -> None:
    """Get an episode and its answer for one slot."""
    assert until is not None
    if not await refill_slot(run, slot, until):
        causes.append("no episode was free")
        return
    try:
        await ask(run, slot, run.request.encoded(slot.index), until - run.clocks.loop.time())
    except ChatError as error:
        slot.lost = slot.lost or error.kind in MAYBE_GONE
        cause = ": ".join(filter(None, (error.kind.value, error.text)))
        _failed(run, slot, cause, causes)


def _failed(run: Run, slot: Candidate, cause: str, causes: list[str]) -> None:
    causes.append(cause)
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


def _listed(causes: list[str]) -> str:
    return ", ".join(dict.fromkeys(causes)) or "no answer"


def _seconds_left(run: Run) -> float:
    """Return the seconds until the group has to be sealed."""
    return run.slots.clock - run.context.clock()
