"""Scores a group again with the present rewards, or repeats its request as a new group."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.runtime import Chance
from core.commands.refusal import NotNow
from core.events import GroupOpened
from proxy.dataset_rows import HEADER, Row, Rows
from proxy.dialects.images import has_images
from proxy.dialects.request import ChatRequest
from proxy.groups.run import AnswerWaiter, FinalAnswer, GroupRun
from proxy.groups.score import apply_scores, evaluate
from proxy.http.errors import ApiError
from proxy.rewards.source import Abstention, Listener, SourceHealth

if TYPE_CHECKING:
    from proxy.context import ProxyContext

log = logging.getLogger(__name__)

_POLL_SECONDS = 30.0


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


def request_of(opened: GroupOpened, rows: Rows, chance: Chance) -> ChatRequest:
    """Return the request of a group as a new request, with new ids and keys.

    A request from a dataset has its row announced again, for its reference and metadata.
    """
    headers = {}
    if opened.row_id:
        name = opened.row_id
        if rows.match({HEADER: name}, "") is not None:  # the mock user has announced this row
            name = f"{name}~{chance.token(2)}"
        rows.register(
            Row(
                row_id=name,
                query=opened.query,
                task_id=opened.dataset_task_id,
                reference=opened.reference,
                metadata=opened.metadata or {},
            )
        )
        headers[HEADER] = name
    return ChatRequest(
        request_id=chance.token(8),
        body=opened.body,
        messages=opened.body.get("messages", []),
        query=opened.query,
        model=opened.model,
        stream=True,
        train=opened.episode_type != "eval",
        session=f"again-{chance.token(4)}",
        key=chance.token(16),
        headers=headers,
    )


async def await_answer(waiter: AnswerWaiter) -> None:
    """Wait for the answer of a repeated request in place of a user."""
    try:
        while not isinstance(await waiter.next(_POLL_SECONDS), FinalAnswer):
            if waiter.left:
                return
        waiter.confirm_delivery()
    finally:
        waiter.leave()


def opened_by(context: "ProxyContext", group_id: str) -> GroupOpened:
    """Return the event that opened a group, from the journal; blocks.

    Raises:
        NotNow: The journal does not contain the request.
    """
    for event in context.journal.group_events(group_id):
        if isinstance(event, GroupOpened):
            messages = event.body.get("messages")
            if isinstance(messages, list):
                if has_images(messages):
                    raise NotNow(f"the images of group {group_id} are not kept")
                return event
            break
    raise NotNow(f"the request of group {group_id} is not kept")


def not_now(refusal: ApiError) -> NotNow:
    """Convert an API error to an error for the operator."""
    return NotNow(f"it cannot be asked again now: {refusal.message}")
