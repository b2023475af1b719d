"""Executes the tools: reads the proxy's state, plans commands, and sends them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line
from console.mcp.confirmation import VALID_SECONDS, Confirmations, needs_confirmation
from console.mcp.content import ContentPolicy
from console.mcp.processes import Processes
from console.mcp.reading import READERS
from console.mcp.schema import McpRole, ToolSpec, check_names, tools
from console.session.app_state import Reply
from core.commands.plan import Plan, shown_args
from core.roles import Identity, require
from core.state import State

RATER = "agent"
"""Name of the rater of votes that name none, unless the control token has a name."""


class Control(Protocol):
    """The control API of the proxy."""

    @property
    def identity(self) -> Identity: ...
    async def snapshot(self) -> State: ...
    async def plan(self, name: str, args: Mapping[str, Any]) -> Plan: ...
    async def command(self, name: str, args: Mapping[str, Any]) -> Reply: ...


Connect = Callable[[], AbstractAsyncContextManager[Control]]
"""Opens the control API; a tool call opens it anew, since the proxy may have restarted."""


class Tools:
    """The tools of one MCP session.

    Args:
        connect: Opens the control API.
        role: `read` or `act`.
        content: What becomes of the texts of models and users.
        processes: Starts processes of the home; None for the proxy of another one.
        confirmations: The tokens of destructive commands.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        role: McpRole,
        content: ContentPolicy,
        processes: Processes | None = None,
        confirmations: Confirmations | None = None,
    ) -> None:
        self._connect = connect
        self._content = content
        self._processes = processes
        self._confirmations = confirmations or Confirmations()
        self._tools = tools(role, content=content.shown, local=processes is not None)
        self._acting = asyncio.Lock()

    async def offered(self) -> list[ToolSpec]:
        """Return the tools that the token permits; all of the server if no proxy answers.

        Raises:
            AjetError: the proxy refuses the token.
        """
        try:
            async with self._connect() as client:
                await client.snapshot()
                identity = client.identity
        except AjetError as error:
            if getattr(error, "status", 0) in (401, 403):
                raise
            return list(self._tools.values())
        return [tool for tool in self._tools.values() if identity.permits(tool.role)]

    async def call(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a tool and return its result.

        Raises:
            AjetError: there is no such tool, or it is refused; gives the reason.
        """
        spec = self._tools.get(name)
        if spec is None:
            what = f"there is no tool `{one_line(name, 60)}`"
            raise UsageError(what, todo=did_you_mean(name, self._tools))
        if spec.command is None:
            check_names(spec, args)
            async with self._connect() as client:
                return READERS[name](self._content.view, await client.snapshot(), args)
        async with self._acting:  # a plan and its execution belong together
            return await self._act(spec, dict(args))

    async def _act(self, spec: ToolSpec, args: dict[str, Any]) -> dict[str, Any]:
        assert spec.command is not None
        command = spec.command
        if command.where != "console":
            async with self._connect() as client:
                await client.snapshot()
                require(client.identity, command.role, f"`{command.name}`")
        check_names(spec, args)
        dry_run, token = args.pop("dry_run", None), args.pop("confirm", None)
        if dry_run not in (None, True, False):
            raise UsageError("`dry_run` must be true or false")
        if any(arg.name == "rater" for arg in command.args):
            args.setdefault("rater", RATER)
        if command.where == "console":
            assert self._processes is not None
            plan = await self._processes.plan(command.name, args, self._snapshot)
            if (planned := self._planned(spec, plan, dry_run, token)) is not None:
                return planned
            message = await self._processes.execute(plan, self._snapshot)
            return {"done": command.name, "message": one_line(message, 1000)}
        async with self._connect() as client:
            plan = await client.plan(command.name, args)
            if (planned := self._planned(spec, plan, dry_run, token)) is not None:
                return planned
            reply = await client.command(command.name, plan.args)
        result: dict[str, Any] = {"done": command.name, "message": one_line(reply.message, 1000)}
        if reply.result and self._content.shown:
            result["result"] = self._content.marked(dict(reply.result))
        return result

    async def _snapshot(self) -> State:
        async with self._connect() as client:
            return await client.snapshot()

    def _planned(
        self, spec: ToolSpec, plan: Plan, dry_run: bool | None, token: object
    ) -> dict[str, Any] | None:
        """Return the result of a dry run; None if the command is to be executed.

        Raises:
            UsageError: the token is not valid for the plan.
        """
        assert spec.command is not None
        danger = spec.command.danger or needs_confirmation(plan)
        if not dry_run and (token is not None or not danger):
            if danger:
                self._confirmations.redeem(token, plan)
            return None
        planned: dict[str, Any] = {
            "dry_run": True,
            "command": plan.command,
            "args": shown_args(plan.args),
            "would": plan.message,
        }
        if plan.loses:
            planned["loses"] = plan.loses
        if danger:
            planned["confirmation"] = {
                "token": self._confirmations.issue(plan),
                "valid_seconds": VALID_SECONDS,
            }
        return planned
