"""What a journal answers in the place of a proxy: it can be read, and nothing can be ordered."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ajet_swarm.common.errors import AjetError
from console.session.app_state import Reply
from core.control_payloads import EpisodeTokens, JobInfo, ServerDetails
from core.events import Event
from core.journal.history import HistoryPage
from core.journal.read_only import JournalFile


class ReplayError(AjetError):
    """It cannot be done because this is a replay."""


class JournalLink:
    """The part of a link that needs no time.

    Args:
        file: The journal.
        position: Number of the last event that is shown.
    """

    def __init__(self, file: JournalFile, position: int) -> None:
        self.file = file
        self.position = position

    async def group_events(self, group_id: str) -> Sequence[Event]:
        """Everything that happened to one group until now."""
        return await asyncio.to_thread(self.file.group_events, group_id, self.position)

    async def history(self, first: int, limit: int) -> HistoryPage:
        """Groups of the journal as they are now."""
        return await asyncio.to_thread(self.file.page, first, limit, self.position)

    async def command(self, name: str, args: Mapping[str, Any]) -> Reply:
        """Refused."""
        self._refuse("nothing can be ordered")

    async def post_fact(self, fact_id: str, event: Event) -> None:
        """Refused."""
        self._refuse("nothing can be added")

    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens:
        """Refused: the engine kept them, not the journal."""
        self._refuse("the engine that has the tokens is not asked")

    async def look(self, server: str) -> ServerDetails:
        """Refused: it would be what the server says today."""
        self._refuse("no server is asked")

    async def job(self, server: str) -> JobInfo:
        """Refused: it would be the job of today."""
        self._refuse("no server is asked for its job")

    def _refuse(self, what: str) -> NoReturn:
        raise ReplayError(f"this is a replay: {what}")
