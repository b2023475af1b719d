"""Agreement to the weight sync, for jobs whose batch ends when the clients agree."""

import asyncio
import logging
from collections.abc import Callable

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EngineState
from proxy.context import ServerHandle

log = logging.getLogger(__name__)

REPEAT_AFTER = 2.0
"""Seconds between two attempts, as in AgentJet's client."""

_Batch = tuple[int | None, float]
"""Global step, and Unix seconds since which the engine is ROLLING."""


class SyncAgreement:
    """Agrees to the weight sync of one server, once a batch.

    Args:
        server: The server.
        tasks: Owner of the repetitions; its end ends them.
    """

    def __init__(self, server: ServerHandle, tasks: Tasks) -> None:
        self._server = server
        self._tasks = tasks
        self._agreed: _Batch | None = None
        """The batch whose end was agreed to."""
        self._repetition: asyncio.Task[None] | None = None

    async def agree(self, idle: Callable[[], bool]) -> None:
        """Agree, if the batch ends by agreement; call this when the last open group has ended.

        An attempt that fails is repeated in the background while the same batch is collected.

        Args:
            idle: Returns whether no group is open. A group that opens ends the repetition.
        """
        if self._repetition is not None:
            self._repetition.cancel()
            self._repetition = None
        batch = self._batch()
        if batch is None or await self._has_agreed(batch, logging.INFO) or not idle():
            return
        name = f"agree:{self._server.name}"
        self._repetition = self._tasks.spawn(self._repeat(batch, idle), name)

    async def _repeat(self, batch: _Batch, idle: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(REPEAT_AFTER)
            if not idle() or self._batch() != batch:
                return
            if await self._has_agreed(batch, logging.DEBUG):
                return

    def _batch(self) -> _Batch | None:
        """Return the batch that is collected and ends by agreement, or None.

        Its step alone does not identify it: an engine may be started again at the same step.
        """
        pool, status = self._server.watcher.pool, self._server.watcher.current
        if pool is None or not pool.agree_to_sync or status.state is not EngineState.ROLLING:
            return None
        return status.step, status.since

    async def _has_agreed(self, batch: _Batch, level: int) -> bool:
        """Agree unless that was done; return whether the server has accepted it.

        Args:
            batch: The batch.
            level: Level of the log message about a failure.
        """
        if self._agreed == batch:
            return True
        try:
            accepted = await self._server.client.agree_sync_weight()
        except SwarmError as error:
            log.log(level, "%s did not accept the agreement to sync: %s", self._server.name, error)
            return False
        if accepted:
            self._agreed = batch
            self._server.watcher.nudge()
        return accepted
