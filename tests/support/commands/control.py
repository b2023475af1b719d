"""A control API in memory, in place of the proxy's."""

import time
from collections.abc import Mapping
from typing import Any, Never, Self

from ajet_swarm.common.errors import AjetError
from core.commands.plan import Plan, plan
from core.control_payloads import JobInfo
from core.roles import OWNER
from core.state import State
from proxy.control.client import CommandReply, ControlError


class FakeControl:
    """A proxy as far as the commands ask it.

    Attributes:
        state: What it answers.
        identity: Whose token the commands have.
        sent: Name and arguments of each command.
        failure: Raised by each request, if any.
        refused: Id of a group -> what a command for it raises.
        replies: Name of a command -> message and result of its reply.
    """

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self.identity = OWNER
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.failure: AjetError | None = None
        self.refused: dict[str, AjetError] = {}
        self.replies: dict[str, tuple[str, Mapping[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def snapshot(self) -> State:
        if self.failure is not None:
            raise self.failure
        return self.state

    async def plan(self, name: str, args: Mapping[str, Any]) -> Plan:
        return plan(self.state, name, args, time.time(), self.identity)

    async def command(self, name: str, args: Mapping[str, Any]) -> CommandReply:
        self.sent.append((name, dict(args)))
        if error := self.failure or self.refused.get(args.get("group_id", "")):
            raise error
        message, result = self.replies.get(name, (f"{name} is done", {}))
        return CommandReply(True, message, dict(result))

    async def settings(self) -> Never:
        raise ControlError("it reports no settings")

    async def job(self, server: str) -> JobInfo:
        return JobInfo(server=server)
