"""Called once for each user request, before any episode is claimed."""

from ajet.schema.task import Task
from loguru import logger

QUERY_HISTORY_MAX = 100

_query_history: list[dict] = []


def get_query_history() -> list[dict]:
    """Recent questions, oldest first."""
    return list(_query_history)


async def on_user_submit_new_requests(request_id: str, task: Task) -> None:
    """Remember the question, and log when it is repeated often."""
    query = task.main_query
    before = sum(entry["query"] == query for entry in _query_history)
    if before >= 20:
        logger.warning("{}: asked {} times of the last {}", request_id, before, QUERY_HISTORY_MAX)
    _query_history.append({"request_id": request_id, "task_id": task.task_id, "query": query})
    del _query_history[:-QUERY_HISTORY_MAX]
