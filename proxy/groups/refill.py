"""Fresh candidates for a scored group that is short, when the operator asks for them."""

import asyncio
from typing import Any

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import DeadlineTimeout, gather_fast
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from core.events import CandidateFailed
from proxy.groups.claim import refill
from proxy.groups.generate import answered, incomplete
from proxy.groups.run import Candidate, GroupRun, Refill
from proxy.groups.score import abstain, evaluate, take
from proxy.groups.submit import release
from proxy.http.errors import NotNow
from proxy.rewards.source import Abstention, ScoreSheet
from proxy.servers.facts import ROLLING, has_lost_all

PATIENCE = 20.0
"""Seconds that the command waits for the outcome."""
LEAST = 0.5
"""Seconds that must be left until the group has to be sealed."""


async def order(run: GroupRun) -> str:
    """Request the candidates that `run` lacks, and wait a while for the outcome.

    Raises:
        NotNow: The group is not short, cannot be refilled now, or no fresh candidate came.
    """
    check(run)
    wanted = Refill(asyncio.get_running_loop().create_future())
    # No one may wait for the outcome any more: mark its exception as retrieved.
    wanted.outcome.add_done_callback(lambda outcome: outcome.exception())
    run.refill = wanted
    run.wake.set()
    assert run.task is not None
    either: set[asyncio.Future[Any]] = {wanted.outcome, run.task}
    await asyncio.wait(either, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if wanted.outcome.done():
        return wanted.outcome.result()
    if run.task.done():
        raise NotNow(f"group {run.group_id} ended meanwhile")
    return f"group {run.group_id} is being refilled; its answers are not there yet"


def check(run: GroupRun) -> None:
    """Check that a group can be refilled now.

    Raises:
        NotNow: It cannot; says why.
    """
    name = f"group {run.group_id}"
    if run.kind == "eval":
        raise NotNow(f"{name} is not trained on: it needs no more candidates")
    if run.refill is not None:
        raise NotNow(f"{name} is being refilled already")
    if run.phase != "AWAITING_RATING":
        raise NotNow(
            f"{name} is {run.phase}: only a group that waits for you can be refilled",
            todo="A failed candidate is asked again by itself before that",
        )
    if len(run.usable) >= run.n:
        raise NotNow(f"{name} is not short: all {run.n} candidates answered")
    if run.rating is not None or run.accepted:
        raise NotNow(
            f"{name} is rated already: fresh candidates would have no place in it",
            todo="Undo the rating first",
        )
    seen = run.facts.server.watcher.current
    if not seen.is_in(ROLLING):
        raise NotNow(
            f"{run.facts.server.name} is {seen.display_state.value}: it gives no fresh episodes"
        )
    if _left(run) < LEAST:
        raise NotNow(f"{name} has no time left for fresh candidates")


async def carry_out(run: GroupRun) -> None:
    """Claim, generate, and score all answers again; the task of the group waits meanwhile.

    Either the fresh answers are in the group with rewards for all, or the group is as before and
    what was claimed for it is returned.
    """
    wanted = run.refill
    assert wanted is not None
    places = [one for one in run.candidates if one.answer is None]
    try:
        said = await _bounded(run, wanted, places)
        if not wanted.outcome.done():
            wanted.outcome.set_result(f"group {run.group_id} {said}")
    except NotNow as error:
        if not wanted.outcome.done():
            wanted.outcome.set_exception(error)
    finally:
        run.refill = None


async def _bounded(run: GroupRun, wanted: Refill, places: list[Candidate]) -> str:
    loop, left = run.loop, _left(run)
    scoring = min(run.context.settings.reward_limit, left / 2)
    patience = run.context.settings.proxy.stream_budget
    scope = DeadlineTimeout(loop.time() + min(patience, left - scoring))

    def seen_now(seen: ServerStatus) -> None:
        if (seen.down or has_lost_all(seen)) and not scope.expired():
            scope.reschedule(loop.time())

    remove = run.facts.server.watcher.add_listener(seen_now)
    try:
        async with scope:
            await run.returned()  # a place is free once its failed episode is given back
            await gather_fast(*(_fill(run, wanted, one, scope.when()) for one in places))
    except TimeoutError:
        wanted.causes.append("no answer in time")
    finally:
        remove()
    await release(run, [one for one in places if one.index not in wanted.fresh], "not answered")
    if not wanted.fresh:
        raise NotNow(f"group {run.group_id} got no fresh candidate: {_why(wanted)}")
    return await _put_in(run, wanted, places)


async def _fill(run: GroupRun, wanted: Refill, place: Candidate, until: float | None) -> None:
    """Get an episode and its answer for one slot; the result goes to `wanted` only."""
    assert until is not None
    if not await refill(run, place, until):
        wanted.causes.append("no episode was free")
        return
    began = run.loop.time()
    assert place.claimed is not None
    client, headers = run.facts.server.client, {"X-Request-Id": run.request.request_id}
    try:
        body = run.request.encoded(place.index)
        answer = await client.chat(place.claimed, body, headers, until - began)
        if fault := incomplete(answer):
            raise ChatError(ChatErrorKind.UPSTREAM, fault)
    except ChatError as error:
        cause = f"{error.kind.value}: {error.text}" if error.text else error.kind.value
        place.lost = place.lost or error.kind in (ChatErrorKind.LOST_EPISODE, ChatErrorKind.BROKEN)
        _failed(run, wanted, place, cause)
        return
    place.active_at = run.context.clock()
    wanted.fresh[place.index] = answer
    wanted.seconds[place.index] = run.loop.time() - began


async def _put_in(run: GroupRun, wanted: Refill, places: list[Candidate]) -> str:
    """Score the group with the fresh answers; they stay if that gives rewards, or if it had none
    before.

    Raises:
        NotNow: The rewards abstain with the fresh answers, which are removed and returned.
    """
    fresh = [one for one in places if one.index in wanted.fresh]
    for one in fresh:
        one.answer, one.seconds = wanted.fresh[one.index], wanted.seconds[one.index]
    run.refresh_usable()
    found: ScoreSheet | Abstention | None = None
    try:
        found = await evaluate(run)
    finally:
        if run.sheet is not None and not isinstance(found, ScoreSheet):
            for one in fresh:
                one.answer = None
            run.refresh_usable()
    if isinstance(found, Abstention) and run.sheet is not None:
        for one in fresh:
            _failed(run, wanted, one, f"the rewards abstain with it: {found.cause}")
        await release(run, fresh, "the rewards abstain with it")
        raise NotNow(f"group {run.group_id} stays as it was: {_why(wanted)}")
    for one in fresh:
        one.error = ""
        answer = wanted.fresh[one.index]
        run.episode_events.answered(answered(one, answer, answer.message))
    run.episode_events.flush()
    if isinstance(found, ScoreSheet):
        take(run, found)
    else:
        abstain(run, found)
    more = f"; {_why(wanted)}" if len(run.usable) < run.n else ""
    return f"has {len(run.usable)} of {run.n} candidates now and is scored again{more}"


def _failed(run: GroupRun, wanted: Refill, place: Candidate, cause: str) -> None:
    wanted.causes.append(cause)
    run.episode_events.flush()  # that it was claimed comes first
    run.context.bus.publish(
        CandidateFailed(
            server=run.facts.server.name,
            group_id=run.group_id,
            index=place.index,
            episode_uuid=place.uuid,
            cause=cause,
        )
    )


def _why(wanted: Refill) -> str:
    return ", ".join(dict.fromkeys(wanted.causes)) or "no answer"


def _left(run: GroupRun) -> float:
    """Return the seconds until the group has to be sealed."""
    return run.clock - run.context.clock()
