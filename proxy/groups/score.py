"""Turns the answers of a run into rewards, or into the reason why there are none.

A group that waits is scored again when the operator wants it, and an unscored one each time that
the rewards work again.
"""

import logging
from collections.abc import Mapping

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import one_line
from core.commands.refusal import NotNow
from core.events import GroupScored, ScoringAbstained
from proxy.groups.run import GroupRun
from proxy.rewards.source import (
    Abstention,
    Answer,
    GroupContext,
    Listener,
    ScoreSheet,
    SourceHealth,
    request_scores,
)

log = logging.getLogger(__name__)


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


# --- again ---------------------------------------------------------------------------------------


async def rescore(run: GroupRun) -> None:
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
    if [one.index for one in run.usable] != sorted(score.index for score in sheet.scores):
        raise NotNow(f"group {run.group_id} was refilled meanwhile, and scored with that")
    apply_scores(run, sheet)
    run.wake.set()


def rescoring(runs: Mapping[str, GroupRun], tasks: Tasks) -> Listener:
    """Return a listener that scores unscored open groups again once the rewards work.

    Args:
        runs: The open groups.
        tasks: Owner of the tasks.
    """

    def changed(health: SourceHealth) -> None:
        if health.ok:
            for run in runs.values():
                unscored = run.phase == "AWAITING_RATING" and run.sheet is None
                if unscored and run.rescored != health.version:  # once for each version
                    run.rescored = health.version
                    tasks.spawn(_try_again(run), f"rescore:{run.group_id}")

    return changed


async def _try_again(run: GroupRun) -> None:
    try:
        await rescore(run)
    except NotNow as error:  # the new version abstains too, or the group has ended
        log.info("not scored again: %s", error)
