"""Turns the answers of a run into rewards, or into the reason why there are none."""

import logging
import traceback

from core.advantage import usable
from core.events import GroupScored, ScoringAbstained
from core.tasks import within
from core.text import one_line
from proxy.rewards.base import Abstention, Answer, GroupContext, ScoreSheet, spare_of
from proxy.run import Run

log = logging.getLogger(__name__)

SLACK = 2.0
"""Seconds a source gets beyond the limit that it keeps itself."""


def context_of(run: Run) -> GroupContext:
    """What a source may look at."""
    row = run.row
    return GroupContext(
        group_id=run.group_id,
        request_id=run.request.request_id,
        task_id=run.task_id,
        query=run.request.query,
        messages=run.request.messages,
        metadata=run.metadata,
        reference=row.reference if row is not None else None,
        answers=tuple(
            [
                Answer(
                    index=one.index,
                    message=one.answer.message,
                    finish_reason=one.answer.finish_reason,
                    episode_uuid=one.uuid,
                    seconds=one.seconds,
                    completion=one.answer.parsed,
                )
                for one in run.usable
                if one.answer is not None
            ]
        ),
        tools=tools if isinstance(tools := run.request.body.get("tools"), list) else (),
    )


async def score(run: Run) -> None:
    """Score the usable candidates; sets `run.sheet`, or leaves it None when the source abstains.

    Never raises for what a source does, and never takes longer than its limit and some slack.
    """
    found = await evaluate(run)
    if isinstance(found, Abstention):
        abstain(run, found)
    else:
        take(run, found)


async def evaluate(run: Run) -> ScoreSheet | Abstention:
    """What the source says of the usable candidates now; changes nothing."""
    source = run.seat.rewards
    context = context_of(run)
    limit = run.seat.settings.rewards.time_limit + SLACK + spare_of(source)
    try:
        sheet = await within(limit, source.score(context))
    except TimeoutError:
        return Abstention(source.name, f"no rewards within {limit:g} s")
    except Exception as error:  # a source is the operator's code: its fault is an abstention
        log.exception("the reward source failed on group %s", run.group_id)
        cause = f"{type(error).__name__}: {error}"
        return Abstention(source.name, cause, traceback.format_exc())
    return sheet.abstention or _fault(sheet, context) or sheet


def take(run: Run, sheet: ScoreSheet) -> None:
    """The scores are those of the group from now on."""
    run.sheet, run.abstained = sheet, ""
    run.scored_at = run.seat.clock()
    best = run.best()
    run.seat.bus.publish(
        GroupScored(
            server=run.sense.server.name,
            group_id=run.group_id,
            scores=sheet.scores,
            best=best.index if best is not None else 0,
            version=sheet.version,
            seconds=sheet.seconds,
        )
    )


def abstain(run: Run, abstention: Abstention) -> None:
    """The group has no automatic rewards."""
    run.scored_at = run.seat.clock()
    run.abstained = one_line(f"{abstention.part}: {abstention.cause}", 300)
    run.seat.bus.publish(
        ScoringAbstained(
            server=run.sense.server.name,
            group_id=run.group_id,
            part=abstention.part,
            cause=abstention.cause,
            traceback=abstention.traceback,
            file=abstention.file,
            line=abstention.line,
        )
    )


def _fault(sheet: ScoreSheet, context: GroupContext) -> Abstention | None:
    """A sheet must hold one finite reward for each answer."""
    wanted = [answer.index for answer in context.answers]
    if sorted([score.index for score in sheet.scores]) != wanted:
        return Abstention("source", f"{len(sheet.scores)} rewards for {len(wanted)} answers")
    for one in sheet.scores:
        if not usable(one.reward):
            return Abstention("source", f"reward {one.index} is {one.reward}")
    return None
