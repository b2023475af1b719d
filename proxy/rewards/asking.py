"""Asks a source for the rewards of one group: a sheet that is sound, or why there is none."""

import logging
import traceback

from ajet_swarm.common.tasks import with_timeout
from core.scoring.advantage import usable
from proxy.rewards.source import (
    Abstention,
    GroupContext,
    RewardSource,
    ScoreSheet,
    at_once,
    spare_of,
)

log = logging.getLogger(__name__)

SLACK = 2.0
"""Seconds a source gets beyond the limit that it keeps itself."""


async def ask(source: RewardSource, context: GroupContext, limit: float) -> ScoreSheet | Abstention:
    """What the source says of a group; never raises for what it does.

    Args:
        source: Who scores.
        context: The group.
        limit: Seconds that the source keeps itself; it gets some slack, and what it needs to spare.
    """
    limit += SLACK + spare_of(source)
    try:
        sheet = at_once(source, context)
        if sheet is None:
            sheet = await with_timeout(limit, source.score(context))
    except TimeoutError:
        return Abstention(source.name, f"no rewards within {limit:g} s", late=True)
    except Exception as error:  # a source is the operator's code: its fault is an abstention
        log.exception("the reward source failed on group %s", context.group_id)
        cause = f"{type(error).__name__}: {error}"
        return Abstention(source.name, cause, traceback.format_exc())
    return sheet.abstention or _fault(sheet, context) or sheet


def _fault(sheet: ScoreSheet, context: GroupContext) -> Abstention | None:
    """A sheet must hold one finite reward for each answer."""
    wanted = [answer.index for answer in context.answers]
    if sorted([score.index for score in sheet.scores]) != wanted:
        return Abstention("source", f"{len(sheet.scores)} rewards for {len(wanted)} answers")
    for one in sheet.scores:
        if not usable(one.reward):
            return Abstention("source", f"reward {one.index} is {one.reward}")
    return None
