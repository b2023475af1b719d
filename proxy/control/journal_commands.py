"""The command that prunes the journal."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from core.journal.prune import PruneResult, Retention
from proxy.context import ProxyContext

REPLY_WAIT = 40.0
"""Seconds within which the command returns; the pruning continues."""


class JournalCommands:
    """The journal commands of one proxy.

    Args:
        context: The proxy's shared parts.
    """

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._task: asyncio.Task[PruneResult] | None = None
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "journal.prune": self.prune
        }

    async def prune(self, args: dict[str, Any]) -> str:
        """Prune now, by the limits in the arguments, else by those of the settings.

        Raises:
            AjetError: the journal cannot be written, or is being pruned.
        """
        pruner = self._context.pruner
        if pruner is None:
            raise AjetError("this proxy prunes no journal")
        if self._task is not None and not self._task.done():
            raise AjetError("the journal is being pruned", todo="See `ajet-console journal stats`")
        days, size = args.get("days", pruner.keep.days), args.get("bytes", pruner.keep.bytes)
        keep = Retention(days, size, bool(args.get("rated")))
        self._task = self._context.tasks.spawn(asyncio.to_thread(pruner.prune, keep), "prune")
        await asyncio.wait([self._task], timeout=REPLY_WAIT)
        if not self._task.done():
            return "it is being pruned: `ajet-console journal stats` shows how far it is"
        return self._task.result().summary
