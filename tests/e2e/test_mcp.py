"""A scripted MCP session with the SDK's own client, against the real processes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from core.commands import COMMANDS
from tests.support.stack import Stack, rows_file

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

READING = {"status", "groups", "group", "runs", "progress", "alerts", "tries"}
QUERY = "What is"
"""The beginning of each query of the dataset."""


class Agent:
    """An MCP client that checks what each result promises."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.texts: list[str] = []

    async def names(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str, **args: Any) -> dict[str, Any]:
        """The data of a result that is no error."""
        result = await self.client.call_tool(name, args)
        self.texts += [one.text for one in result.content if one.type == "text"]
        assert not result.is_error, self.texts[-1]
        return dict(result.structured_content)

    async def refused(self, name: str, **args: Any) -> str:
        """The text of a result that is an error."""
        result = await self.client.call_tool(name, args)
        (text,) = [one.text for one in result.content if one.type == "text"]
        assert result.is_error, text
        return text

    async def until(
        self, what: str, read: Callable[[], Awaitable[Any]], seconds: float = 90.0
    ) -> Any:
        try:
            async with asyncio.timeout(seconds):
                while not (value := await read()):
                    await asyncio.sleep(0.2)
                return value
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}") from None


@asynccontextmanager
async def session(stack: Stack, *args: str) -> AsyncIterator[Agent]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "console", "run", "mcp", *args],
        env=stack.environment,
        cwd=Path(__file__).parents[2],
    )
    async with Client(stdio_client(command), read_timeout_seconds=60) as client:
        yield Agent(client)


async def test_an_agent_operates_a_run(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        # `group_accept` comes before it is over
        stack.environment["AJET_CONSOLE__RATING__WINDOW"] = "60"
        await asyncio.to_thread(stack.engine)
        await asyncio.to_thread(stack.proxy)
        async with session(stack) as reader:
            assert await reader.names() == READING
            assert "there is no tool `engine_stop`" in await reader.refused("engine_stop")
        async with session(stack, "--role", "act") as agent:
            await _operate(stack, agent, rows_file(tmp_path / "rows.jsonl", 3))
        await _garbage(stack)


async def _operate(stack: Stack, agent: Agent, rows: Path) -> None:
    dangerous = {name.replace(".", "_") for name, command in COMMANDS.items() if command.danger}
    assert READING | dangerous <= await agent.names()

    async def state() -> str:
        return str((await agent.call("status"))["servers"]["embedded"]["state"])

    async def waiting() -> list[dict[str, Any]]:
        found = (await agent.call("groups", where="state:awaiting"))["groups"]
        return found if len(found) == 3 else []

    async def offline() -> bool:
        return await state() == "OFFLINE"

    await agent.until("the proxy has read the engine's state", offline)
    planned = await agent.call("engine_start", dry_run=True)
    assert planned["would"].startswith("would execute “Engine: Start”")
    assert await state() == "OFFLINE"
    await agent.call("engine_start")

    async def rolling() -> bool:
        return await state() == "ROLLING"

    await agent.until("the engine is ROLLING", rolling)
    await agent.call("rating_mode", mode="hold")
    for more in ({}, {"dry_run": True}):
        assert "there is no dataset" in await agent.refused("mock_start", dataset="gone", **more)
    start = {"dataset": str(rows), "concurrency": 3}  # not in the home: it needs a confirmation
    planned = await agent.call("mock_start", **start)
    assert planned["would"].startswith("would ask 3 rows of ")
    token = planned["confirmation"]["token"]
    started = await agent.call("mock_start", **start, confirm=token)
    assert started["message"].startswith("the mock user is running")
    groups = await agent.until("three groups wait", waiting)

    # rate by rule: the candidate with the best automatic reward
    for group in groups[:2]:
        rewards = [reward or 0.0 for reward in group["automatic_rewards"]]
        best = rewards.index(max(rewards))
        args = {"group_id": group["group_id"], "rating": "best", "order": [best]}
        assert "done" in await agent.call("group_rate", **args)
        detail = await agent.call("group", group_id=group["group_id"])
        assert detail["rating"]["order"] == [best]
        assert "rater" not in detail["rating"]  # a text of a user
        await agent.call("group_accept", group_id=group["group_id"])  # ends the undo window

    # a destructive command: without, with a wrong, with its own, with a used token
    last = groups[2]["group_id"]
    impossible = {"group_id": last, "rating": "best", "order": [99]}
    assert "index" in await agent.refused("group_rate", **impossible)
    planned = await agent.call("group_abort", group_id=last, reason="debugging")
    token = planned["confirmation"]["token"]
    assert "4 episodes" in planned["loses"]
    assert "unknown" in await agent.refused("group_abort", group_id=last, confirm="x")
    assert "other arguments" in await agent.refused("group_abort", group_id=last, confirm=token)
    again = await agent.call("group_abort", group_id=last, reason="debugging")
    args = {"group_id": last, "reason": "debugging", "confirm": again["confirmation"]["token"]}
    assert (await agent.call("group_abort", **args))["done"] == "group.abort"

    async def aborted() -> bool:
        return bool((await agent.call("group", group_id=last))["phase"] == "ABORTED")

    await agent.until("the group is aborted", aborted)
    await agent.refused("group_abort", **args)

    await agent.call("mock_stop")
    stop = (await agent.call("engine_stop"))["confirmation"]["token"]
    await agent.call("engine_stop", confirm=stop)
    assert "used already" in await agent.refused("engine_stop", confirm=stop)
    assert await state() == "OFFLINE"
    assert (await agent.call("runs"))["runs"][0]["rated"] == 2

    tokens = [token, again["confirmation"]["token"], stop]
    assert not [
        text for text in agent.texts if any(access_token in text for access_token in tokens)
    ]
    assert not [text for text in agent.texts if QUERY in text], "a text without --content"


async def _garbage(stack: Stack) -> None:
    """Lines that are no messages are answered or left out, and the session goes on."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "console", "run", "mcp"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=stack.environment,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    lines = [
        b"not json at all\n",
        b"\xff\xfe\x00\n",
        b"[" * 5_000 + b"\n",
        b'{"jsonrpc": "2.0", "id": 1, "method": 7}\n',
        _message(2, "initialize", hello),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n',
        _message(3, "no/such/method", {}),
        _message(4, "tools/call", {"name": 5}),
        _message(5, "tools/call", {"name": "group", "arguments": {"group_id": ["a"]}}),
        _message(6, "tools/call", {"name": "groups", "arguments": {"where": "reward<"}}),
        _message(7, "tools/call", {"name": "status"}),
    ]
    process.stdin.write(b"".join(lines))
    assert process.stdout is not None
    answers: dict[Any, dict[str, Any]] = {}
    unread = 0
    async with asyncio.timeout(60):
        while 7 not in answers or len(answers) + unread < 11:
            one = json.loads(await process.stdout.readline())
            if one["id"] is None:
                unread += 1
                assert one["error"]["code"] == -32700
            answers[one["id"]] = one
        process.stdin.close()
        assert await process.wait() == 0
    assert unread == 4
    for number in (3, 4):
        assert answers[number]["error"]["message"], number
    for number in (5, 6):
        assert answers[number]["result"]["isError"], number
    assert answers[7]["result"]["structuredContent"]["servers"]


def _message(number: int, method: str, params: dict[str, Any]) -> bytes:
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(body).encode() + b"\n"
