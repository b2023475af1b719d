"""Called once for each user request, before any episode is claimed."""

import logging
from collections import Counter

from ajet.schema.task import Task

log = logging.getLogger(__name__)

asked: Counter[str] = Counter()
"""Number of requests of each question since this process started."""


async def on_user_submit_new_requests(request_id: str, task: Task) -> None:
    """Record the request. Values put into `task.metadata` stay with the group."""
    question = " ".join(task.main_query.lower().split())
    asked[question] += 1
    task.metadata["objective"] = "answer with enthusiasm"
    task.metadata["asked_before"] = asked[question] - 1
    if asked[question] > 20:
        log.warning("%s: the same question for the %dth time", request_id, asked[question])
