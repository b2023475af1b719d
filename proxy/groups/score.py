"""Turns the answers of a run into rewards, or into the reason why there are none."""

from ajet_swarm.common.text import one_line
from core.events import GroupScored, ScoringAbstained
from proxy.groups.run import GroupRun
from proxy.rewards.source import Abstention, Answer, GroupContext, ScoreSheet, request_scores


def context_of(run: GroupRun) -> GroupContext:
    """Return the input of a reward source for a group."""
    row = run.row
    return GroupContext(
        group_id=run.group_id,
        request_id=run.request.request_id,
        task_id=run.task_id,
        query=run.request.query,
        messages=run.request.shown or run.request.messages,
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


async def score(run: GroupRun) -> None:
    """Score the usable candidates; set `run.sheet`, or leave it None if the source abstains.

    Never raises for an error in a source, and never takes much longer than its time limit.
    """
    result = await evaluate(run)
    if isinstance(result, Abstention):
        record_abstention(run, result)
    else:
        apply_scores(run, result)


async def evaluate(run: GroupRun) -> ScoreSheet | Abstention:
    """Return the scores of the usable candidates now; change nothing."""
    return await request_scores(
        run.context.rewards, context_of(run), run.context.settings.reward_limit
    )


def apply_scores(run: GroupRun, sheet: ScoreSheet) -> None:
    """Set the scores of the group."""
    run.sheet, run.abstained = sheet, ""
    run.scored_at = run.context.clock()
    best = run.best()
    run.context.bus.publish(
        GroupScored(
            server=run.facts.server.name,
            group_id=run.group_id,
            scores=sheet.scores,
            best=best.index if best is not None else 0,
            version=sheet.version,
            seconds=sheet.seconds,
        )
    )


def record_abstention(run: GroupRun, abstention: Abstention) -> None:
    """Record that the group has no automatic rewards."""
    run.scored_at = run.context.clock()
    run.abstained = one_line(f"{abstention.part}: {abstention.cause}", 300)
    run.context.bus.publish(
        ScoringAbstained(
            server=run.facts.server.name,
            group_id=run.group_id,
            part=abstention.part,
            cause=abstention.cause,
            traceback=abstention.traceback,
            file=abstention.file,
            line=abstention.line,
            late=abstention.late,
        )
    )
