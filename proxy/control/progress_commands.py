"""Commands of the progress measurement: look, baseline, rewind, pause and resume, blind pairs."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.text import content_text, known_names
from core.commands import CommandError
from core.commands.refusal import NotNow
from core.events import GroupOpened, ProbePrompt
from core.journal.file import JournalError
from proxy.control.group_commands import GroupCommands, opened_by
from proxy.control.rewind import Execute, rewind
from proxy.evaluation.reaction import PAUSED_BY_OPERATOR
from proxy.evaluation.service import Evaluation, MeasurementService

Answer = tuple[str, dict[str, Any]]
"""Message for the operator, and data for a program."""


class ProgressCommands:
    """The commands of one proxy; see `proxy.evaluation`.

    Args:
        evaluation: The looks at the probe sets.
        execute: Executes a command: restores checkpoints, applies jobs.
        group_commands: Finds groups.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        execute: Execute,
        group_commands: GroupCommands,
    ) -> None:
        self._group_commands = group_commands
        self._services = evaluation.services
        for name, service in self._services.items():
            service.reaction.restore = _restorer(execute, name)
        self._execute = execute
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str | Answer]]] = {
            "group.pin": self._pin,
            "progress.look": self._look,
            "progress.trust": self._trust,
            "progress.rewind": self._rewind,
            "progress.pause": self._pause,
            "progress.resume": self._resume,
            "progress.pair": self._pair,
            "progress.vote": self._vote,
        }

    async def _look(self, args: dict[str, Any]) -> str:
        return self._service(args).demand("look")

    async def _trust(self, args: dict[str, Any]) -> str:
        return self._service(args).demand("baseline")

    async def _pin(self, args: dict[str, Any]) -> str:
        """Add the prompt of a group to the probe set of its server."""
        group = await self._group_commands.find_any(args["group_id"])
        context = self._group_commands.context
        with contextlib.suppress(JournalError):  # then read the journal as it is
            await context.journal.committed(context.bus.state.seq)
        opened = await asyncio.to_thread(opened_by, context, group.group_id)
        service = self._service({"server": group.server})
        return await service.pin([prompt_of(opened)])

    async def _rewind(self, args: dict[str, Any]) -> str:
        path, plan_id = args.get("path") or "", args.get("plan_id") or ""
        context, service = self._group_commands.context, self._service(args)
        return await rewind(context, self._execute, service, path, plan_id)

    async def _pause(self, args: dict[str, Any]) -> str:
        return self._service(args).reaction.pause(PAUSED_BY_OPERATOR)

    async def _resume(self, args: dict[str, Any]) -> str:
        return self._service(args).reaction.resume()

    async def _pair(self, args: dict[str, Any]) -> Answer:
        pairs = self._service(args).pairs
        return await pairs.pair(args.get("rater", ""), args.get("newest", False))

    async def _vote(self, args: dict[str, Any]) -> Answer:
        pairs = self._service(args).pairs
        return await pairs.vote(args["pair_id"], args["choice"], args.get("rater", ""))

    def _service(self, args: Mapping[str, Any]) -> MeasurementService:
        name = args.get("server") or next(iter(self._services), "")
        if name not in self._services:
            raise CommandError(
                f"there is no server `{name}` that is trained",
                todo=known_names(name, self._services),
            )
        return self._services[name]


def prompt_of(opened: GroupOpened) -> ProbePrompt:
    """Return the request of a group as a prompt of the probe set.

    Raises:
        NotNow: The request offers tools, or does not end with a text of the user.
    """
    messages = opened.body.get("messages") or []
    last = messages[-1] if messages else {}
    text = content_text(last.get("content")) if isinstance(last, dict) else ""
    if not isinstance(last, dict) or last.get("role") != "user" or not text.strip():
        raise NotNow("its request does not end with a text of the user", opened.group_id)
    if opened.body.get("tools"):
        raise NotNow("its request offers tools, which looks do not", opened.group_id)
    return ProbePrompt(
        id=f"group-{opened.group_id}",
        prompt=text,
        before=tuple(messages[:-1]),
        reference=opened.reference or "",
    )


def _restorer(execute: Execute, server: str) -> Callable[[str], Awaitable[str]]:
    async def run(name: str) -> str:
        return (await execute("engine.restore", {"server": server, "name": name}))[0]

    return run
