"""The fake vLLM from outside, on a real socket."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.settings import Settings
from proxy.endpoint import create_app
from tests.support.capped_clock import loop_time
from tests.support.proxy.front import BODIES
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import client, served

pytestmark = pytest.mark.slow

HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "Say hello."}]}
CHAT = "/v1/chat/completions"


@contextlib.asynccontextmanager
async def front(
    tmp_path: Path, swarm: ScriptedSwarm | None = None, configured: Settings | None = None
) -> AsyncIterator[tuple[World, httpx.AsyncClient]]:
    async with (
        world(tmp_path, swarm, configured) as w,
        served(create_app(w.context, w.groups)) as url,
        client(url) as http,
    ):
        yield w, http


def data_events(text: str) -> list[Any]:
    lines = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def raw_request(client: httpx.AsyncClient, body: dict[str, Any], **headers: str) -> Any:
    """A connection of its own, with the request sent."""
    url = client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    data = json.dumps(body).encode()
    head = [f"POST {CHAT} HTTP/1.1", "host: localhost", "content-type: application/json"]
    head += [f"content-length: {len(data)}", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
    await writer.drain()
    return reader, writer


# --- answers ------------------------------------------------------------------------------------


async def test_a_whole_answer(tmp_path: Path) -> None:
    async with front(tmp_path) as (w, client):
        answer = await client.post(CHAT, json=HELLO, headers={"x-request-id": "my-id-1"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-length"] == str(len(answer.content))
        assert answer.headers["x-request-id"] == "my-id-1"
        body = answer.json()
        assert (body["id"], body["model"]) == ("chatcmpl-my-id-1", "tiny")
        (group,) = w.state.groups.values()
        best = group.candidates[3].episode_uuid
        assert body["choices"][0]["message"]["content"] == f"answer 0 of {best[:6]}"
        assert body["usage"]["completion_tokens"] == 4  # of the winner alone
        await w.closed()


async def test_a_streamed_answer(tmp_path: Path) -> None:
    async with front(tmp_path) as (w, client):
        body = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
        answer = await client.post(CHAT, json=body)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache"
        assert "x-request-id" not in answer.headers
        result = data_events(answer.text)
        assert len({(one["id"], one["created"], one["model"]) for one in result}) == 1
        text = "".join(
            one["choices"][0]["delta"].get("content", "") for one in result if one["choices"]
        )
        (group,) = w.state.groups.values()
        assert text == f"answer 0 of {group.candidates[3].episode_uuid[:6]}"
        assert result[-1]["choices"] == []
        assert result[-1]["usage"]["completion_tokens"] == 4
        await w.closed()


async def test_the_stream_begins_before_any_episode_is_claimed_and_is_kept_alive(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        front(tmp_path, swarm, settings(proxy={"keepalive": 0.05})) as (w, client),
    ):
        async with client.stream("POST", CHAT, json={**HELLO, "stream": True}) as answer:
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            first = json.loads((await anext(lines)).removeprefix("data: "))
            assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert not swarm.claims
            stored = 0
            while stored < 3:
                if (line := await anext(lines)).startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    assert event["choices"][0]["delta"] == {}
                    stored += 1
            swarm.set_state("ROLLING", 2)
            rest = [line async for line in lines]
            assert "data: [DONE]" in rest
        await w.closed()
        (group,) = w.state.groups.values()
        assert group.phase == "DONE"


async def test_any_model_name_is_echoed(tmp_path: Path) -> None:
    async with front(tmp_path) as (w, client):
        for name, echoed in (("gpt-9", "gpt-9"), (None, w.groups.models()[0])):
            body = {**HELLO, "model": name}
            assert (await client.post(CHAT, json=body)).json()["model"] == echoed
        await w.closed()


async def test_an_error_after_the_200_is_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
    async with front(tmp_path, configured=settings(rewards={"retries": 0})) as (w, client):
        w.swarm.answer = _broken
        answer = await client.post(CHAT, json={**HELLO, "stream": True})
        assert answer.status_code == 200
        assert data_events(answer.text)[-1]["error"]["code"] == 503
        whole = await client.post(CHAT, json=HELLO)
        assert whole.status_code == 503
        assert whole.headers["retry-after"] == "5"
        assert "Traceback" not in whole.text
        assert "127.0.0.1" not in whole.text
        await w.closed()


async def _broken(name: str, body: dict[str, Any], index: int) -> Any:
    return RuntimeError("worker died at /srv/model")


async def test_a_request_for_a_starting_engine_is_retried_soon(tmp_path: Path) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm, front(tmp_path, swarm) as (w, client):
        w.context.servers["s"].is_starting = lambda: True
        answer = await client.post(CHAT, json=HELLO)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "x-should-retry" not in answer.headers
        assert answer.json()["error"]["message"].startswith("The engine is starting.")


@pytest.mark.parametrize("path", BODIES)
async def test_an_answer_that_takes_too_long_is_not_requested_again(
    tmp_path: Path, path: str
) -> None:
    limits = settings(proxy={"answer_budget": 0.1, "answer_limit": 0.2})
    async with front(tmp_path, configured=limits) as (w, client):
        w.swarm.delay = 30.0
        answer = await client.post(path, json=BODIES[path])
        assert (answer.status_code, answer.headers["x-should-retry"]) == (504, "false")
        assert "retry-after" not in answer.headers
        assert "No candidate answered in time." in answer.json()["error"]["message"]
        await w.closed()
        assert not w.swarm.claimed()


@pytest.mark.parametrize(
    ("agent", "quiet", "status"),
    [
        ("codex_exec/0.171.0 (Debian)", 0.0, 400),
        ("claude-cli/2.1.197 (external, cli)", 0.0, 400),
        ("opencode/1.18.33 ai-sdk/provider-utils", 0.0, 400),
        ("QwenCode/0.15.10 (linux; x64)", 0.0, 400),
        ("QwenCode/0.15.10 (linux; x64)", 3600.0, 503),
        ("OpenAI/JS 6.26.0", 0.0, 503),
    ],
)
async def test_silent_agents_get_a_final_status_while_the_engine_stays_offline(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    agent: str,
    quiet: float,
    status: int,
) -> None:
    monkeypatch.setattr("proxy.context.QUIET", quiet)
    async with (
        ScriptedSwarm(state="OFFLINE") as swarm,
        front(tmp_path, swarm) as (w, http),
    ):
        answer = await http.post(CHAT, json=HELLO, headers={"user-agent": agent})
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith("The engine is OFFLINE: ")
        assert ("retry-after" in answer.headers) == (status == 503)
        w.context.servers["s"].is_starting = lambda: True
        starting = await http.post(CHAT, json=HELLO, headers={"user-agent": agent})
        assert starting.status_code == 503


async def test_a_request_for_a_stopped_engine_names_its_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm, front(tmp_path, swarm) as (w, client):
        answer = await client.post(CHAT, json=HELLO)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "60"
        assert answer.headers["x-should-retry"] == "false"
        error = answer.json()["error"]
        assert error["type"] == "Service Unavailable"
        assert error["message"].startswith("The engine is OFFLINE: ")
        assert "`ajet-console engine start`" in error["message"]
        assert "busy" not in error["message"]
        streamed = await client.post(CHAT, json={**HELLO, "stream": True})
        assert (streamed.status_code, streamed.json()["error"]) == (503, error)
        assert "users are answered 503: s is OFFLINE" in caplog.text
        assert "503: The engine is OFFLINE" in caplog.text
        assert (await client.get("/health")).status_code == 503
        swarm.set_state("BOOTING")
        await w.until(lambda: w.groups.serving)
        assert (await client.get("/health")).status_code == 200


async def test_an_overload_is_refused_at_once(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        front(tmp_path, swarm, settings(proxy={"queue_limit": 1})) as (w, client),
    ):
        _, writer = await raw_request(client, {**HELLO, "stream": True})
        await w.until(lambda: w.groups.waiting)
        began = loop_time()
        answer = await client.post(CHAT, json={**HELLO, "stream": True, "x": 1})
        assert loop_time() - began < 0.5
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert not swarm.claims
        writer.close()
        await w.closed()


# --- clients that leave and come again ----------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_a_closed_socket_frees_the_episodes_within_a_second(
    tmp_path: Path, stream: bool
) -> None:
    async with front(tmp_path) as (w, client):
        w.swarm.delay = 30.0
        reader, writer = await raw_request(client, {**HELLO, "stream": stream})
        await w.until(lambda: len(w.swarm.chats) == 4)
        if stream:
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        began = loop_time()
        await w.until(lambda: not w.swarm.claimed())
        assert loop_time() - began < 1.0
        await w.closed()
        (group,) = w.state.groups.values()
        assert (group.phase, group.cause) == ("ABORTED", "client left")


async def test_a_client_may_disconnect_before_its_body_is_complete(tmp_path: Path) -> None:
    async with front(tmp_path) as (w, client):
        url = client.base_url
        _, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(head.encode() + b'content-length: 100\r\n\r\n{"model"')
        await writer.drain()
        writer.close()
        assert (await client.post(CHAT, json=HELLO)).status_code == 200
        await w.closed()
        assert len(w.state.groups) == 1


async def test_the_same_request_again_is_joined(tmp_path: Path) -> None:
    async with front(tmp_path) as (w, client):
        w.swarm.delay = 0.05
        first, second = await asyncio.gather(*(client.post(CHAT, json=HELLO) for _ in range(2)))
        await w.closed()
        assert len(w.swarm.claims) == 4
        assert first.json()["id"] != second.json()["id"]
        assert first.json()["choices"] == second.json()["choices"]


async def test_one_connection_serves_many_requests_in_turn(tmp_path: Path) -> None:
    async with front(tmp_path) as (w, client):
        for number in range(6):
            body = {**HELLO, "stream": bool(number % 2), "x": number}
            assert (await client.post(CHAT, json=body)).status_code == 200
        await w.closed()
        assert len(w.swarm.ends) == 24
        assert len(w.context.tasks) == 1  # the watcher: no listener is left behind


# --- errors -------------------------------------------------------------------------------------


async def test_errors_have_vllms_shapes(tmp_path: Path) -> None:
    async with front(tmp_path, configured=settings(proxy={"max_body_mb": 1})) as (w, client):
        kind = {"content-type": "application/json"}
        bad = await client.post(CHAT, content=b"{", headers=kind)
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, 400)
        assert (await client.post(CHAT, content=b"{}")).status_code == 400
        large = await client.post(CHAT, content=b" " * (1 << 21), headers=kind)
        assert large.status_code == 413
        assert large.json()["error"]["code"] == 413
        refused = await client.get(CHAT)
        assert (refused.status_code, refused.json()) == (405, {"detail": "Method Not Allowed"})
        assert refused.headers["allow"] == "POST"
        lost = await client.get("/v1/nothing")
        assert (lost.status_code, lost.json()) == (404, {"detail": "Not Found"})
        assert not w.state.groups


async def test_a_large_body_without_a_length_is_refused_too(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * (1 << 19)

    async with front(tmp_path, configured=settings(proxy={"max_body_mb": 1})) as (_, client):
        kind = {"content-type": "application/json"}
        answer = await client.post(CHAT, content=chunks(), headers=kind)
        assert answer.status_code == 413


async def test_an_unknown_model_when_a_name_is_served(tmp_path: Path) -> None:
    async with front(tmp_path, configured=settings(proxy={"served_model_name": "tiny"})) as (
        w,
        client,
    ):
        for stream in (False, True):
            body = {**HELLO, "model": "nope", "stream": stream}
            answer = await client.post(CHAT, json=body)
            assert answer.status_code == 404
            assert answer.json() == {
                "error": {
                    "message": "The model `nope` does not exist. Valid aliases: tiny.",
                    "type": "NotFoundError",
                    "param": "model",
                    "code": 404,
                }
            }
        assert (await client.post(CHAT, json=HELLO)).status_code == 200
        await w.closed()


async def test_only_v1_requires_the_key(tmp_path: Path) -> None:
    async with front(tmp_path, configured=settings(proxy={"api_key": "sk-one"})) as (w, client):
        refused: list[dict[str, str]] = [
            {},
            {"authorization": "Bearer sk-two"},
            {"authorization": "Basic sk-one"},
            {"authorization": "sk-one"},
            {"x-api-key": "sk-on\u00e9"},
        ]
        for headers in refused:
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            answer = await client.post(CHAT, json=HELLO, headers=raw)
            assert answer.status_code == 401
            assert answer.content == b'{"error":"Unauthorized"}'
        assert (await client.get("/v1/nothing")).status_code == 401
        for headers in ({"authorization": "bearer sk-one"}, {"x-api-key": "sk-one"}):
            assert (await client.post(CHAT, json=HELLO, headers=headers)).status_code == 200
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/version")).status_code == 200
        await w.closed()
        assert "sk-one" not in str([event for event in w.events])


# --- the rest -----------------------------------------------------------------------------------


async def test_models_and_health(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm:
        swarm.model = "/models/tiny"
        async with front(tmp_path, swarm) as (w, client):
            await w.until(lambda: w.server.watcher.pool)
            body = (await client.get("/v1/models")).json()
            assert body["object"] == "list"
            (card,) = body["data"]
            assert list(card) == [
                "id",
                "object",
                "created",
                "owned_by",
                "root",
                "parent",
                "max_model_len",
                "permission",
            ]
            assert (card["id"], card["root"], card["owned_by"]) == ("tiny", "tiny", "vllm")
            assert card["permission"][0]["id"].startswith("modelperm-")
            assert (await client.get("/v1/models/tiny")).json()["id"] == "tiny"
            assert (await client.get("/v1/models/nope")).status_code == 404
            for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
                answer = await client.request(method, path)
                assert (answer.status_code, answer.content) == (200, b"")
            assert (await client.head("/health")).status_code == 405
            assert set((await client.get("/version")).json()) == {"version"}


async def test_one_hundred_streams_at_once_do_not_mix(tmp_path: Path) -> None:
    calm = settings(proxy={"answer_budget": 60.0, "stream_budget": 60.0})
    async with (
        ScriptedSwarm(batch=1000, slots=400) as swarm,
        front(tmp_path, swarm, calm) as (w, client),
    ):
        swarm.answer = _echo

        async def one(number: int) -> None:
            messages = [{"role": "user", "content": f"number {number}"}]
            body = {"model": "m", "messages": messages, "stream": True}
            result = data_events((await client.post(CHAT, json=body)).text)
            text = "".join(event["choices"][0]["delta"].get("content", "") for event in result)
            assert text == f"you said number {number}"
            ids.add(result[0]["id"])

        ids: set[str] = set()
        await asyncio.gather(*(one(number) for number in range(100)))
        await w.closed()
        assert len(ids) == 100
        assert not swarm.claimed()
        assert len(swarm.ends) == 400


async def _echo(name: str, body: dict[str, Any], index: int) -> str:
    return f"you said {body['messages'][-1]['content']}"
