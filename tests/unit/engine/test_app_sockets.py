"""What only a real connection shows: trickling streams, clients that hang up, cut connections."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.app import create_app
from engine.interface import Completion
from tests.support.engine.client import Driver, driving, wait_for
from tests.support.served import served

pytestmark = pytest.mark.slow


@asynccontextmanager
async def connected(d: Driver) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with served(create_app(d.engine)) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()


def request(path: str, body: Any, key: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    if key:
        head += f"Authorization: Bearer {key}\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


FORMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "//v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}]},
}


@pytest.mark.parametrize("path", FORMS)
async def test_a_stream_trickles_and_a_client_that_hangs_up_ends_the_call(
    d: Driver, path: str
) -> None:
    episode = await d.claim()
    policy = d.engine.policy_holder.policy
    assert policy is not None
    more = asyncio.Event()
    ended: list[str] = []

    async def sample(prompt: Any, params: Any, on_text: Any = None) -> Completion:
        try:
            on_text("first")
            await more.wait()
            on_text("second")
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        raise AssertionError

    policy.sample = sample  # type: ignore[method-assign]
    async with connected(d) as (reader, writer):
        body = {**FORMS[path], "stream": True}
        writer.write(request(path, body, episode["openai_api_key"]))
        async with asyncio.timeout(30):
            received = await reader.readuntil(b"first")
            assert received.startswith(b"HTTP/1.1 200 OK")
            assert b"second" not in received
            more.set()
            await reader.readuntil(b"second")
        assert ended == []
        writer.close()
        await wait_for(lambda: ended == ["cancelled"])
    await d.end(episode, "t")
    assert d.engine.pool.finished == {}, "an answer nobody got is no call"


async def test_a_client_that_hangs_up_frees_a_whole_answer_too(d: Driver) -> None:
    episode = await d.claim()
    d.bench.sample_gate = asyncio.Event()
    async with connected(d) as (_, writer):
        path = "/v1/chat/completions"
        writer.write(request(path, FORMS[path], episode["openai_api_key"]))
        await wait_for(lambda: d.bench.sampling == 1)
        writer.close()
        await wait_for(lambda: d.bench.sampling == 0)
    d.bench.sample_gate.set()
    await d.end(episode, "t")
    assert d.engine.pool.finished == {}, "an answer nobody got is no call"


@pytest.mark.parametrize("faithful", [False, True])
async def test_the_connection_after_an_assertion(faithful: bool) -> None:
    async with driving(faithful=faithful) as d:
        await d.sync()
        async with connected(d) as (reader, writer):
            writer.write(request("/agree_sync_weight", {"client_uuid": "c"}))
            async with asyncio.timeout(30):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 500" if faithful else b"HTTP/1.1 400")
                assert b"connection: close" not in head.lower(), "it is not announced"
                if faithful:
                    assert await reader.read() == b"Internal Server Error"
                    return
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                await reader.readexactly(length)
                writer.write(request("/can_continue_episode", FORMS["/v1/responses"]))
                assert (await reader.readline()).startswith(b"HTTP/1.1 422")


async def test_a_prompt_of_ten_megabytes_is_cut_and_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.app.MAX_BODY", 16 << 20)
    async with driving() as d:
        await d.start()
        episode = await d.claim()
        answer = await d.chat(episode, "word " * 2_000_000)
        assert answer.status_code == 200
        assert answer.json()["ajetc"]["truncated"] is True
        too_long = await d.chat(episode, "word " * 3_500_000)
        assert too_long.status_code == 413
