"""Each command by each role on each way to send it: console, command line, HTTP, MCP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from ajet_swarm.common.errors import AjetError
from console.cli import main
from console.cli.common import send_command
from console.cli.options import Args
from console.mcp.content import ContentPolicy
from console.mcp.schema import tool_name
from console.mcp.server import make_server
from console.mcp.tools import Tools
from console.models.available_commands import available_commands
from console.session.app_state import Session
from core.commands import COMMANDS
from core.roles import ROLES, AccessRole
from proxy.control.client import ControlClient, ControlError
from tests.support.proxy.guarded import NOT_NOW, RATING, Guarded, arguments, guarded, make_ready

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OF_PROXY = {name: one for name, one in COMMANDS.items() if one.where == "proxy"}
PERMITTED: Mapping[AccessRole, set[str]] = {
    "viewer": set(),
    "rater": RATING,
    "operator": set(OF_PROXY),
}
SENT_BY_VERBS: Mapping[str, list[str]] = {
    "group.rate": ["rate", "g0001", "--tie"],
    "group.unrate": ["group", "unrate", "g0001"],
    "group.accept": ["accept", "g0001"],
    "group.abort": ["abort", "g0001", "--yes"],
    "group.mark": ["group", "mark", "g0001"],
    "group.note": ["group", "note", "g0001", "--text", "x"],
    "group.rescore": ["group", "rescore", "g0001"],
    "rating.mode": ["rating", "mode", "hold"],
    "rating.abort_all": ["rating", "abort-all", "--yes"],
    "engine.start": ["engine", "start", "--yes"],
    "engine.stop": ["engine", "stop", "--yes"],
    "engine.apply": ["engine", "apply", "--yes"],
    "run.pin": ["runs", "pin", "1", "on"],
    "rewards.weight": ["rewards", "weight", "length", "0.5"],
    "progress.pause": ["progress", "pause"],
    "mock.stop": ["mock", "stop"],
    "proxy.drain": ["proxy", "drain"],
}
"""Command -> a command line of it; the others are sent by the function that all verbs use."""

Refused = Callable[[str], Awaitable[bool]]
"""Sends a command; returns whether it was refused because of the role."""


@asynccontextmanager
async def by_console(one: Guarded, role: AccessRole) -> AsyncIterator[Refused]:
    async with one.client(role) as client:
        session = Session(link=client)
        session.state = await client.snapshot()
        session.identity = client.identity
        session.seen = True
        offered = {found.command for found in available_commands(session, "g0001", None)}
        assert offered <= PERMITTED[role]

        async def send(name: str) -> bool:
            outcome = await session.command(name, **arguments(COMMANDS[name]))
            assert outcome.ok or "it needs the role" in outcome.message or name in NOT_NOW, outcome
            return "it needs the role" in outcome.message

        yield send


@asynccontextmanager
async def by_http(one: Guarded, role: AccessRole) -> AsyncIterator[Refused]:
    async with one.client(role) as client:

        async def send(name: str) -> bool:
            try:
                await client.command(name, arguments(COMMANDS[name]))
            except ControlError as error:
                return error.status == 403
            return False

        yield send


@asynccontextmanager
async def by_command_line(one: Guarded, role: AccessRole) -> AsyncIterator[Refused]:
    file = one.access.path.with_name(f"{role}.token")
    file.write_text(one.tokens[role])
    home = str(one.access.path.parent)
    place = Args(home=Path(home), url=one.url, token_file=file)

    async def send(name: str) -> bool:
        if name in SENT_BY_VERBS:
            words = ["--home", home, "--url", one.url, "--token-file", str(file)]
            return await asyncio.to_thread(main, [*SENT_BY_VERBS[name], *words]) != 0
        try:
            await send_command(place, name, arguments(COMMANDS[name]))
        except AjetError as error:
            return "needs the role" in str(error)
        return False

    yield send


@asynccontextmanager
async def by_mcp(one: Guarded, role: AccessRole) -> AsyncIterator[Refused]:
    @asynccontextmanager
    async def connect() -> AsyncIterator[ControlClient]:
        async with one.client(role) as client:
            yield client

    tools = Tools(connect, role="act", content=ContentPolicy(shown=True))
    async with Client(make_server(tools)) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        expected = {tool_name(name) for name in PERMITTED[role]}
        assert listed & {tool_name(name) for name in OF_PROXY} == expected

        async def send(name: str) -> bool:
            args = arguments(COMMANDS[name])
            result = await client.call_tool(tool_name(name), args)
            if COMMANDS[name].danger and not result.is_error:
                confirm = result.structured_content["confirmation"]["token"]
                result = await client.call_tool(tool_name(name), {**args, "confirm": confirm})
            if not result.is_error:
                return False
            message: str = result.structured_content["error"]["message"]
            assert "needs the role" in message or name in NOT_NOW, message
            return "needs the role" in message

        yield send


WAYS = {"console": by_console, "HTTP": by_http, "command line": by_command_line, "MCP": by_mcp}


@pytest.mark.parametrize("role", ROLES)
async def test_no_way_permits_a_role_more_or_less_than_another(
    role: AccessRole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with guarded(tmp_path) as one:
        make_ready(one)
        for way, opened in WAYS.items():
            one.recorder.executed.clear()
            async with opened(one, role) as refused:
                by_role = {name: await refused(name) for name in OF_PROXY}
            assert {name for name, yes in by_role.items() if not yes} == PERMITTED[role], way
            executed = {name for name, _ in one.recorder.executed}
            assert executed == PERMITTED[role] - NOT_NOW, way
