"""Commands on what the journal keeps: names, notes and pins of engine runs, and pruning.

A watch-only proxy has them as well: they change nothing on a server.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.commands.spec import Handler, NotNow
from core.events import RunNamed, RunNoted, RunPinned
from core.journal.prune import PruneResult, Retention
from proxy.context import ProxyContext

REPLY_WAIT = 40.0
"""Seconds within which a pruning returns; it continues."""


class RecordCommands:
    """The commands on engine runs and on the journal, after their plan has permitted them.

    Args:
        context: The proxy's shared parts.
    """

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._pruning: asyncio.Task[PruneResult] | None = None
        self.table: Mapping[str, Handler] = {
            "run.name": self.name,
            "run.note": self.note,
            "run.pin": self.pin,
            "journal.prune": self.prune,
        }

    async def name(self, number: int, name: str) -> str:
        """Name a run; an empty name removes the present one."""
        name = one_line(name)
        await self._record(RunNamed, number, name=name)
        return f"run {number} is named {name}" if name else f"run {number} has no name any more"

    async def note(self, number: int, note: str) -> str:
        """Set the note of a run; an empty text removes it."""
        note = note.strip()
        await self._record(RunNoted, number, note=note)
        return f"the note of run {number} is {'written' if note else 'removed'}"

    async def pin(self, number: int, pinned: bool = True) -> str:
        """Pin or unpin a run: the groups of a pinned run are never pruned."""
        await self._record(RunPinned, number, pinned=pinned)
        if pinned:
            return f"run {number} is pinned: its requests are never pruned"
        return f"run {number} is not pinned any more"

    async def _record(
        self, kind: type[RunNamed | RunNoted | RunPinned], number: int, **fields: Any
    ) -> None:
        """Publish an event of a run, and wait until a kill of the proxy can no longer lose it.

        Raises:
            NotNow: The journal cannot be written; nothing has changed.
        """
        bus, journal = self._context.bus, self._context.journal
        if error := journal.error:
            todo = "Send it again once the journal can be written; see the alert"
            raise NotNow(f"nothing is changed: the journal cannot be written: {error}", todo=todo)
        run = bus.state.engine_runs.numbered(number)
        assert run is not None  # its plan has found it
        bus.publish(kind(server=run.server, first_seq=run.first_seq, **fields))
        await journal.committed(bus.state.seq)

    async def prune(self, **limits: Any) -> str:
        """Prune now, by the limits in the arguments, else by those of the settings.

        Raises:
            AjetError: the journal cannot be written, or is being pruned.
        """
        pruner = self._context.pruner
        if pruner is None:
            raise AjetError("this proxy prunes no journal")
        if self._pruning is not None and not self._pruning.done():
            raise AjetError("the journal is being pruned", todo="See `ajet-console journal stats`")
        keep = Retention(**{"days": pruner.keep.days, "bytes": pruner.keep.bytes, **limits})
        self._pruning = self._context.tasks.spawn(asyncio.to_thread(pruner.prune, keep), "prune")
        await asyncio.wait([self._pruning], timeout=REPLY_WAIT)
        if not self._pruning.done():
            return "it is being pruned: `ajet-console journal stats` shows how far it is"
        return self._pruning.result().summary
