"""Called once for each user request, before any episode is claimed."""

import logging
from collections import Counter

from ajet.schema.task import Task

log = logging.getLogger(__name__)

asked: Counter[str] = Counter()
"""How often each question came, as long as this process lives."""


async def on_user_submit_new_requests(request_id: str, task: Task) -> None:
    """Note the request. What is put into `task.metadata` stays with the group."""
    question = " ".join(task.main_query.lower().split())
    asked[question] += 1
    task.metadata["objective"] = "answer with enthusiasm"
    task.metadata["asked_before"] = asked[question] - 1
    if asked[question] > 20:
        log.warning("%s: the same question for the %dth time", request_id, asked[question])
