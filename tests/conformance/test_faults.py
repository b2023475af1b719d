"""Checklist 65 to 75: clients that leave and come again, sessions, load. From raw bytes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.events import GroupOpened, RequestJoined
from tests.conformance.forms import (
    CHAT,
    HELLO,
    MESSAGES,
    PATHS,
    TOOLED,
    ask,
    ask_json,
    chunks,
    settle,
    text_of,
)
from tests.support.capped_clock import loop_time
from tests.support.proxy.front import BODIES, LAST, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import wire

LIVE = settings(proxy={"answer": "live"})


def opened(f: Front) -> list[Any]:
    return f.world.kinds(GroupOpened)


# --- clients that leave -------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_65_a_client_that_disconnects_during_an_answer(tmp_path: Path, path: str) -> None:
    semaphore = asyncio.Semaphore(0)

    async def on_token(name: str, index: int) -> None:
        await semaphore.acquire()

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        if not body.get("stream"):
            await asyncio.sleep(30.0)
        return "alpha beta gamma delta"

    async with ScriptedSwarm(answer=candidate_answer) as swarm, fronted(tmp_path, swarm, LIVE) as f:
        swarm.streaming, swarm.on_token = "tokens", on_token
        async with wire(f.url) as line:
            await line.ask("POST", path, {**BODIES[path], "stream": True})
            await line.head()
            received = b""
            parts = line.chunks()
            while b"alpha" not in received:
                semaphore.release()
                received += await anext(parts)
        began = loop_time()
        await f.world.until(lambda: not swarm.claimed())
        assert loop_time() - began < 1.0
        await f.world.closed()
        assert not swarm.rewards
        semaphore.release()
        for _ in range(50):
            semaphore.release()
        await f.world.until(lambda: not f.handler.metrics.open)
        # The slots are free: the next one is served.
        swarm.answer = _quick
        assert (await ask(f, path, {**BODIES[path], "user": "next"})).status == 200
        await settle(f)


async def _quick(name: str, body: dict[str, Any], index: int) -> str:
    return "quick"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_67_a_retry_after_a_timeout_makes_no_second_group(
    tmp_path: Path, path: str, streams: bool
) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.delay = 0.3
        body = {**BODIES[path], "stream": streams}
        async with wire(f.url) as line:
            await line.ask("POST", path, body)
            await f.world.until(lambda: len(f.world.swarm.chats) == 4)
        answer = await ask(f, path, body)  # at once, as clients do
        assert answer.status == 200
        assert b"answer 0 of" in answer.body or LAST[path] in answer.body
        await settle(f)
        assert len(f.world.swarm.claims) == 4
        assert len(opened(f)) == len(f.world.kinds(RequestJoined)) == 1


async def test_67_a_late_retry_finds_the_first_cancelled(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        swarm = f.world.swarm
        swarm.delay = 30.0
        async with wire(f.url) as line:
            await line.ask("POST", CHAT, HELLO)
            await f.world.until(lambda: len(swarm.chats) == 4)
        await f.world.until(lambda: not swarm.claimed())
        swarm.delay = 0.0
        assert (await ask(f, CHAT, HELLO)).status == 200
        await settle(f)
        assert swarm.most_claimed == 4  # never 2N at once
        assert len(swarm.rewards) == 4


# --- names and sessions -------------------------------------------------------------------------


async def test_69_the_clients_id_reaches_all_episodes(f: Front) -> None:
    answer = await ask(f, CHAT, HELLO, headers={"x_request_id": "my-id-1"})
    assert answer.headers["x-request-id"] == "my-id-1"
    assert answer.json()["id"] == "chatcmpl-my-id-1"
    upstream_headers = [headers for _, _, headers in f.world.swarm.chats]
    ids = [
        {name.lower(): one for name, one in value.items()}["x-request-id"]
        for value in upstream_headers
    ]
    assert ids == ["my-id-1"] * 4


@pytest.mark.parametrize("path", PATHS)
async def test_70_sessions(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path, configured=settings(proxy={"repeats": 1})) as f:
        ways: list[tuple[str, dict[str, str], dict[str, Any]]] = [
            (path, {"X_Session_ID": "s-0"}, {}),
            (path, {"x_session_id": "s-1"}, {}),
            (path, {"session_id": "s-2"}, {}),
            (path, {"x_claude_code_session_id": "s-3"}, {}),
            (path, {}, {"session_id": "s-4"}),
            (f"/sessions/s-5{path}", {}, {}),
            (path, {"authorization": "Bearer sk-ajet-session-s-6"}, {}),
            (path, {"x_api_key": "sk-ajet-session-s-7"}, {}),
            (path, {}, {"metadata": {"user_id": "user_1_account__session_s-8-abcdef"}}),
            (path, {}, {"client_metadata": {"session_id": "s-9"}}),
        ]
        for where, headers, more in ways:
            answer = await ask(f, where, {**BODIES[path], **more}, headers=headers)
            assert answer.status == 200, answer.body
        await settle(f)
        sessions = [group.session for group in opened(f)]
        assert sessions == [*(f"s-{at}" for at in range(8)), "s-8-abcdef", "s-9"]


async def test_71_a_title_call_is_one_episode_and_not_trained_on(tmp_path: Path) -> None:
    title = [
        {
            "role": "system",
            "content": "You are a title generator. You output ONLY a thread title. No more.",
        },
        {"role": "user", "content": "Generate a title for this conversation:\n"},
        *HELLO["messages"],
    ]
    mark = {"x_session_id": "ses_1"}
    async with fronted(tmp_path) as f:
        helper, main = await asyncio.gather(
            ask(f, CHAT, {**HELLO, "messages": title, "stream": True}, headers=mark),
            ask(f, CHAT, {**TOOLED, "stream": True}, headers=mark),
        )
        assert helper.status == main.status == 200
        assert LAST[CHAT] in helper.body
        await settle(f)
        assert len(f.world.swarm.claims) == 1 + 4
        assert len(f.world.swarm.rewards) == 4
        assert sorted(group.helper for group in opened(f)) == ["", "opencode-title"]


@pytest.mark.parametrize("path", PATHS)
async def test_72_caps_of_a_session(tmp_path: Path, path: str) -> None:
    capped = settings(proxy={"session_cap": 1, "session_calls": 2, "repeats": 1})
    mark = {"x_session_id": "wild"}
    async with fronted(tmp_path, configured=capped) as f, wire(f.url) as first:
        f.world.swarm.delay = 0.3
        await first.ask("POST", path, BODIES[path], **mark)
        await f.world.until(lambda: f.world.swarm.chats)
        before = len(f.world.swarm.claims)
        for streams in (False, True):  # one is open
            body = {**BODIES[path], "stream": streams, "user": "other"}
            answer = await ask(f, path, body, headers=mark)
            assert (answer.status, answer.headers["retry-after"]) == (429, "2")
            assert "Too many requests" in answer.json()["error"]["message"]
        assert len(f.world.swarm.claims) == before
        assert (await first.answer()).status == 200
        await settle(f)
        assert (await ask(f, path, {**BODIES[path], "user": "b"}, headers=mark)).status == 200
        await settle(f)
        answer = await ask(f, path, {**BODIES[path], "user": "c"}, headers=mark)  # the third
        assert answer.status == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 61
        tame = {"x_session_id": "tame"}
        assert (await ask(f, path, BODIES[path], headers=tame)).status == 200
        await settle(f)


# --- load ---------------------------------------------------------------------------------------


async def test_75_a_slow_episode_does_not_hold_the_answer(tmp_path: Path) -> None:
    calls = 0

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            await asyncio.sleep(30.0)
        return f"answer of {name}"

    wait = 0.3
    configured = settings(
        proxy={"straggler_after": wait, "straggler": "cut"}, rating={"window": 0.0}
    )
    async with fronted(tmp_path, configured=configured) as f:
        f.world.swarm.answer = candidate_answer
        for path in (CHAT, MESSAGES):
            began = loop_time()
            assert b"answer of" in (await ask(f, path, {**BODIES[path], "stream": True})).body
            assert (await ask_json(f, path, BODIES[path]))["id"]
            assert loop_time() - began < 2 * (wait + 1.0)
        await settle(f)
        assert len(f.world.swarm.aborts) == 4  # the late ones


async def test_75_a_slow_episode_and_an_answer_that_is_not_streamed(tmp_path: Path) -> None:
    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(30.0 if name == f.world.swarm.claims[0] else 0.0)
        return f"answer of {name}"

    async with fronted(tmp_path, configured=settings(proxy={"answer_budget": 0.4})) as f:
        f.world.swarm.answer = candidate_answer
        began = loop_time()
        result = await ask_json(f, CHAT, HELLO)
        assert loop_time() - began < 1.5
        assert result["choices"][0]["message"]["content"].startswith("answer of")


async def test_complaint_a_stream_while_everything_is_recorded(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        result = await chunks(f, {**HELLO, "return_token_ids": True})
        assert text_of(result).startswith("answer 0 of")
        await settle(f)
        (group,) = f.world.state.groups.values()
        assert (group.phase, group.returned) == ("DONE", 3)
        assert f.world.context.journal.error == ""
