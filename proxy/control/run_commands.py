"""The operator's commands on engine runs: name, note, pin; after their plan has permitted them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.text import one_line
from core.commands.refusal import NotNow
from core.events import Event, RunNamed, RunNoted, RunPinned
from core.state import EngineRun
from proxy.context import ProxyContext


class RunCommands:
    """The commands on engine runs; each is committed in the journal before it returns.

    Args:
        context: The proxy's shared parts.
    """

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "run.name": lambda args: self.name(**args),
            "run.note": lambda args: self.note(**args),
            "run.pin": lambda args: self.pin(**args),
        }

    async def name(self, number: int, name: str) -> str:
        """Name a run; an empty name removes the present one."""
        run, name = self._run(number), one_line(name)
        await self._publish(RunNamed(server=run.server, first_seq=run.first_seq, name=name))
        return f"run {number} is named {name}" if name else f"run {number} has no name any more"

    async def note(self, number: int, note: str) -> str:
        """Set the note of a run; an empty text removes it."""
        run, note = self._run(number), note.strip()
        await self._publish(RunNoted(server=run.server, first_seq=run.first_seq, note=note))
        return f"the note of run {number} is {'written' if note else 'removed'}"

    async def pin(self, number: int, pinned: bool = True) -> str:
        """Pin or unpin a run: the groups of a pinned run are never pruned."""
        run = self._run(number)
        await self._publish(RunPinned(server=run.server, first_seq=run.first_seq, pinned=pinned))
        if pinned:
            return f"run {number} is pinned: its requests are never pruned"
        return f"run {number} is not pinned any more"

    def _run(self, number: int) -> EngineRun:
        run = self._context.bus.state.engine_runs.numbered(number)
        assert run is not None  # its plan has found it
        return run

    async def _publish(self, event: Event) -> None:
        """Publish an event, and wait until a kill of the proxy can no longer lose it.

        Raises:
            NotNow: The journal cannot be written; nothing has changed.
        """
        journal = self._context.journal
        if error := journal.error:
            todo = "Send it again once the journal can be written; see the alert"
            raise NotNow(f"nothing is changed: the journal cannot be written: {error}", todo=todo)
        self._context.bus.publish(event)
        await journal.committed(self._context.bus.state.seq)
