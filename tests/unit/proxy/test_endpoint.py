"""The routes that answer, from outside on a real socket: in the form of each dialect."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.capped_clock import loop_time
from tests.support.proxy.front import BODIES, FIRST, LAST, Front, fronted, sse
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import Wire, wire

pytestmark = pytest.mark.slow


PATHS = tuple(BODIES)


CHAT = "/v1/chat/completions"


ONCE = settings(rewards={"retries": 0})


def streamed(path: str, **more: Any) -> dict[str, Any]:
    return {**BODIES[path], "stream": True, **more}


async def until_closed(f: Front) -> None:
    await f.world.closed()
    assert not f.world.swarm.claimed()


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_answer_is_a_single_body(f: Front, wired: Wire, path: str) -> None:
    await wired.ask("POST", path, BODIES[path], accept_encoding="gzip, br")
    answer = await wired.answer()
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert "content-encoding" not in answer.headers
    assert "x-request-id" not in answer.headers
    await until_closed(f)
    (group,) = f.world.state.groups.values()
    best = f"answer 0 of {group.candidates[3].episode_uuid[:6]}"
    assert best in answer.body.decode()
    assert answer.json()["model"] == "tiny"
    if path == CHAT:
        assert answer.json()["usage"]["completion_tokens"] == 4  # of the winner alone


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_is_chunked_and_unbuffered(f: Front, wired: Wire, path: str) -> None:
    await wired.ask("POST", path, streamed(path), accept_encoding="gzip, br")
    status, headers = await wired.head()
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["transfer-encoding"] == "chunked"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers
    assert "content-encoding" not in headers
    parts = [part async for part in wired.chunks()]
    assert all(part.endswith(b"\n\n") for part in parts)  # events are never cut
    assert LAST[path] in parts[-1]
    await wired.ask("GET", "/health")  # the connection is still good
    assert (await wired.answer()).status == 200
    await until_closed(f)


@pytest.mark.parametrize("state", ["WEIGHT_SYNCING", "ROLLING"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_opens_at_once_and_is_kept_alive(
    tmp_path: Path, path: str, state: str
) -> None:
    """While ROLLING, no episode is free."""
    async with (
        ScriptedSwarm(state=state, slots=0, automatic=False) as swarm,
        fronted(tmp_path, swarm, settings(proxy={"keepalive": 0.05})) as f,
        wire(f.url) as one,
    ):
        began = loop_time()
        await one.ask("POST", path, streamed(path))
        status, _ = await one.head()
        parts = one.chunks()
        first = await anext(parts)
        assert loop_time() - began < 0.1
        assert status == 200
        assert FIRST[path] in first or path == "/v1/completions"  # it has no role
        assert not swarm.claims
        for _ in range(3):
            stored = await anext(parts)
            (event,) = sse(stored.decode())
            assert event.get("type") in (None, "ping", "response.in_progress")
            assert b"Say" not in stored
        swarm.set_state("ROLLING", 2)
        swarm.register(4)
        rest = b"".join([part async for part in parts])
        assert LAST[path] in rest
        assert b": x-ajet-weights: " in rest
        assert b"answer 0 of" in first + stored + rest or b"answer" in rest
        await until_closed(f)
        assert (await f.metrics())["ajet_keepalives_total"] >= 3


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_of_ten_megabytes_is_accepted(f: Front, wired: Wire, path: str) -> None:
    long = "word " * 2_000_000
    body = json.loads(json.dumps(BODIES[path]).replace("Say hello.", long))
    await wired.ask("POST", path, body)
    assert (await wired.answer(20.0)).status == 200
    await until_closed(f)
    assert len(json.dumps(f.world.swarm.chats[0][1])) > 10_000_000


async def words(name: str, body: dict[str, Any], index: int) -> str:
    return "alpha beta gamma delta"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.world(settings(proxy={"answer": "live", "keepalive": 60.0}), answer=words)
async def test_deltas_are_forwarded_as_they_arrive(f: Front, wired: Wire, path: str) -> None:
    semaphore = asyncio.Semaphore(0)

    async def on_token(name: str, index: int) -> None:
        await semaphore.acquire()

    f.world.swarm.streaming, f.world.swarm.on_token = "tokens", on_token
    await wired.ask("POST", path, streamed(path))
    await wired.head()
    parts, received = wired.chunks(), b""
    for word in (b"alpha", b"beta", b"gamma"):
        while word not in received:
            assert LAST[path] not in received
            semaphore.release()
            async with asyncio.timeout(20):
                received += await anext(parts)
        assert b"delta " not in received
        assert b"gamma" not in received or word == b"gamma"
    for _ in range(50):
        semaphore.release()
    received += b"".join([part async for part in parts])
    assert received.count(b"gamma") == 1 or path == "/v1/responses"  # which repeats it whole
    assert LAST[path] in received
    await until_closed(f)
    (group,) = f.world.state.groups.values()
    assert (group.returned, group.returned_why) == (0, "live")


async def test_an_undelivered_answer_is_replayed(f: Front) -> None:
    f.world.swarm.delay = 0.2
    first = await f.client.post(CHAT, json=BODIES[CHAT])
    again = await f.client.post(CHAT, json=BODIES[CHAT])
    assert len(f.world.state.groups) == 2  # it was read: the same question is a new one
    retried = {"x-stainless-retry-count": "1"}
    third = await f.client.post(CHAT, json=BODIES[CHAT], headers=retried)
    assert len(f.world.state.groups) == 2
    assert third.json()["choices"] == again.json()["choices"] != first.json()["choices"]
    await until_closed(f)


# --- errors -------------------------------------------------------------------------------------


def message_of(path: str, body: Any) -> str:
    """The text of an error that has its dialect's form."""
    if path == "/v1/messages" and body.get("type") == "error":
        assert set(body["error"]) >= {"type", "message"}
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    return str(body["error"]["message"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_an_invalid_request_is_refused_in_each_dialect(
    f: Front, wired: Wire, path: str, stream: bool
) -> None:
    bad: list[bytes] = [b"{", b"[]", b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'"text"']
    bad.append(json.dumps(streamed(path, temperature="hot", stream=stream)).encode())
    bad.append(json.dumps({**BODIES[path], "stream": "maybe"}).encode())
    for data in bad:
        await wired.ask("POST", path, data, x_request_id="mine-1")
        answer = await wired.answer()
        assert answer.status == 400, data[:50]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"] == "mine-1"
        body = answer.json()
        assert body == {"detail": "There was an error parsing the body"} or message_of(path, body)
    await wired.send(
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n"
        "content-length: 2\r\n\r\n{}"
    )
    assert (await wired.answer()).status == 400
    assert not f.world.state.groups
    assert (await f.metrics())['ajet_requests_refused_total{status="400"}'] == len(bad) + 1


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens"])
@pytest.mark.world(settings(proxy={"served_model_name": "tiny", "max_body_mb": 1}))
async def test_an_unknown_model_and_a_body_that_is_too_large(
    f: Front, wired: Wire, path: str
) -> None:
    body = BODIES.get(path) or BODIES["/v1/messages"]
    for stream in (False, True):
        await wired.ask("POST", path, {**body, "model": "nope", "stream": stream})
        answer = await wired.answer()
        assert answer.status == 404
        error = answer.json()["error"]
        assert error["message"] == "The model `nope` does not exist. Valid aliases: tiny."
        if not path.startswith("/v1/messages"):
            assert (error["type"], error["param"], error["code"]) == ("NotFoundError", "model", 404)
        assert (answer.json().get("type") == "error") == path.startswith("/v1/messages")
    await wired.ask("POST", path, b" " * (1 << 21))
    answer = await wired.answer()
    assert answer.status == 413
    assert "1 MiB" in answer.json()["error"]["message"]
    assert answer.headers["connection"] == "close"
    assert await wired.closed() == b""


async def broken(name: str, body: dict[str, Any], index: int) -> Any:
    return RuntimeError("Traceback: worker died at /srv/model on 10.1.2.3")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.world(ONCE)
async def test_no_candidate_is_a_503_in_each_dialect(
    f: Front, wired: Wire, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f.world.swarm.answer = broken
    await wired.ask("POST", path, BODIES[path])
    answer = await wired.answer()
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    message_of(path, answer.json())
    monkeypatch.setattr("proxy.api.handler.SOON", 60.0)
    await wired.ask("POST", path, {**streamed(path), "user": "other"})
    assert (await wired.answer()).status == answer.status
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
    await wired.ask("POST", path, streamed(path))
    body = (await wired.answer()).body.decode()
    last = sse(body)[-1]
    if path == "/v1/messages":
        assert "event: error\n" in body
        assert last["type"] == "error"
        assert "message_stop" not in body
    elif path == "/v1/responses":
        assert "event: response.failed\n" in body
        assert last["type"] == "response.failed"
        assert last["response"]["status"] == "failed"
    else:
        assert last["error"]["code"] == answer.status
        assert body.endswith("data: [DONE]\n\n")
    for text in (answer.body.decode(), body):
        for secret in ("Traceback", "/srv", "10.1.2.3", "127.0.0.1", "RuntimeError"):
            assert secret not in text
    await until_closed(f)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_overload_is_refused_at_once(tmp_path: Path, path: str, stream: bool) -> None:
    few = settings(proxy={"queue_limit": 1})
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        fronted(tmp_path, swarm, few) as f,
        wire(f.url) as first,
        wire(f.url) as second,
    ):
        await first.ask("POST", CHAT, streamed(CHAT))
        await f.world.until(lambda: f.world.groups.waiting)
        began = loop_time()
        await second.ask("POST", path, {**BODIES[path], "stream": stream, "user": "other"})
        answer = await second.answer()
        assert loop_time() - began < 0.1
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert "busy" in message_of(path, answer.json())
        assert not swarm.claims


# --- clients that leave -------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_disconnect_frees_the_episodes_within_a_second(
    f: Front, path: str, stream: bool
) -> None:
    swarm = f.world.swarm
    swarm.delay = 30.0
    async with wire(f.url) as one:
        await one.ask("POST", path, {**BODIES[path], "stream": stream})
        await f.world.until(lambda: len(swarm.chats) == 4)
        if stream:
            await one.head()
    began = loop_time()
    await f.world.until(lambda: not swarm.claimed())
    assert loop_time() - began < 1.0
    await f.world.closed()
    (group,) = f.world.state.groups.values()
    assert (group.phase, group.cause) == ("ABORTED", "client left")
    await f.world.until(lambda: not f.handler.metrics.open)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.world(state="WEIGHT_SYNCING", automatic=False)
async def test_a_disconnect_before_any_claim(f: Front, path: str) -> None:
    async with wire(f.url) as one:  # in the midst of its body
        data = json.dumps(BODIES[path])
        await one.send(
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n{data[:-5]}"
        )
        await f.world.until(lambda: f.handler.metrics.open)
    await f.world.until(lambda: not f.handler.metrics.open)
    assert not f.world.state.groups
    for stream in (False, True):
        async with wire(f.url) as one:  # in the queue
            await one.ask("POST", path, {**BODIES[path], "stream": stream})
            await f.world.until(lambda: f.world.groups.waiting)
        await until_closed(f)
    assert not f.world.swarm.claims
    assert len(f.world.context.tasks) == 1  # the watcher: no listener is left behind


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens", "/tokenize"])
async def test_a_disconnect_is_noticed_before_the_group_is_opened(
    f: Front, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def waits(*_: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    for name in ("handler.ContextWindows.check", "info.count_tokens", "info.ask"):
        monkeypatch.setattr(f"proxy.api.{name}", waits)
    async with wire(f.url) as one:
        await one.ask("POST", path, BODIES.get(path) or BODIES["/v1/messages"])
        async with asyncio.timeout(60):
            await asked.wait()
    async with asyncio.timeout(60):
        await left.wait()
    await f.world.until(lambda: not f.handler.metrics.open)
    assert not f.world.state.groups


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_over_http_1_0_ends_with_the_connection(
    f: Front, wired: Wire, path: str
) -> None:
    data = json.dumps(streamed(path))
    await wired.send(
        f"POST {path} HTTP/1.0\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n{data}"
    )
    answer = await wired.answer()
    assert answer.status == 200
    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert LAST[path] in answer.body
    assert sse(answer.body.decode())
    await until_closed(f)


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.world(ONCE)
async def test_the_clients_own_request_id_is_returned(
    f: Front, wired: Wire, path: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await wired.ask("POST", path, {**BODIES[path], "stream": stream}, x_request_id="my-id-1")
    answer = await wired.answer()
    assert answer.headers["x-request-id"] == "my-id-1"
    assert "my-id-1" in answer.body.decode()
    await f.world.closed()
    (group,) = f.world.state.groups.values()
    assert group.request_id == "my-id-1"
    f.world.swarm.answer = broken
    other = {**BODIES[path], "stream": stream, "user": "other"}
    await wired.ask("POST", path, other, x_request_id="my-id-2")
    assert (await wired.answer()).headers["x-request-id"] == "my-id-2"
    await f.world.closed()
    (line,) = [line for line in caplog.messages if "my-id-2" in line and path in line]
    assert "127.0.0.1" in line


# --- no way out ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_an_internal_error_is_reported_without_its_details(
    f: Front, wired: Wire, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(parsed: Any) -> None:
        raise KeyError("/srv/secret")

    monkeypatch.setattr("proxy.api.handler.public_answer", fault)
    for stream, begun in ((False, False), (True, False), (True, True)):
        monkeypatch.setattr("proxy.api.handler.SOON", 0.0 if begun else 60.0)
        await wired.ask("POST", path, {**BODIES[path], "stream": stream, "user": str(begun)})
        answer = await wired.answer()
        assert answer.status == (200 if begun else 500)
        assert b"could not be completed" in answer.body
        assert b"secret" not in answer.body
    await until_closed(f)


@pytest.mark.parametrize("path", PATHS)
async def test_at_the_end_of_the_grace_period_every_request_is_answered(
    tmp_path: Path, path: str
) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one, wire(f.url) as two:
        f.world.swarm.delay = 30.0
        await one.ask("POST", path, streamed(path))
        await two.ask("POST", path, {**BODIES[path], "user": "other"})
        await f.world.until(lambda: len(f.world.swarm.chats) == 8)
        async with asyncio.TaskGroup() as tasks, wire(f.url) as late:
            tasks.create_task(f.world.groups.drain(0.3))
            await f.world.until(lambda: f.world.groups.draining)
            await late.ask("POST", path, {**BODIES[path], "user": "late"})
            answer = await late.answer()
            assert answer.status == 503
            assert answer.headers["retry-after"]
            await late.ask("GET", "/health")
            assert (await late.answer()).status == 503
            f.handler.expire_now()
            assert b"error" in (await one.answer(2.0)).body
            assert (await two.answer(2.0)).status == 503
        await until_closed(f)


HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "Say hello."}]}


# --- answers ------------------------------------------------------------------------------------


async def test_any_model_name_is_echoed(f: Front) -> None:
    for name, echoed in (("gpt-9", "gpt-9"), (None, f.world.groups.models()[0])):
        body = {**HELLO, "model": name}
        assert (await f.client.post(CHAT, json=body)).json()["model"] == echoed
    await f.world.closed()


@pytest.mark.world(state="OFFLINE")
async def test_a_request_for_a_starting_engine_is_retried_soon(f: Front) -> None:
    f.world.context.servers["s"].is_starting = lambda: True
    answer = await f.client.post(CHAT, json=HELLO)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "x-should-retry" not in answer.headers
    assert answer.json()["error"]["message"].startswith("The engine is starting.")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.world(settings(proxy={"answer_budget": 0.1, "answer_limit": 0.2}))
async def test_an_answer_that_takes_too_long_is_not_requested_again(f: Front, path: str) -> None:
    f.world.swarm.delay = 30.0
    answer = await f.client.post(path, json=BODIES[path])
    assert (answer.status_code, answer.headers["x-should-retry"]) == (504, "false")
    assert "retry-after" not in answer.headers
    assert "No candidate answered in time." in answer.json()["error"]["message"]
    await f.world.closed()
    assert not f.world.swarm.claimed()


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
@pytest.mark.world(state="OFFLINE")
async def test_silent_agents_get_a_final_status_while_the_engine_stays_offline(
    f: Front, monkeypatch: pytest.MonkeyPatch, agent: str, quiet: float, status: int
) -> None:
    monkeypatch.setattr("proxy.context.QUIET", quiet)
    answer = await f.client.post(CHAT, json=HELLO, headers={"user-agent": agent})
    assert answer.status_code == status
    assert answer.json()["error"]["message"].startswith("The engine is OFFLINE: ")
    assert ("retry-after" in answer.headers) == (status == 503)
    f.world.context.servers["s"].is_starting = lambda: True
    starting = await f.client.post(CHAT, json=HELLO, headers={"user-agent": agent})
    assert starting.status_code == 503


@pytest.mark.world(state="OFFLINE")
async def test_a_request_for_a_stopped_engine_names_its_state(
    f: Front, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await f.client.post(CHAT, json=HELLO)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "60"
    assert answer.headers["x-should-retry"] == "false"
    error = answer.json()["error"]
    assert error["type"] == "Service Unavailable"
    assert error["message"].startswith("The engine is OFFLINE: ")
    assert "`ajet-console engine start`" in error["message"]
    assert "busy" not in error["message"]
    streamed = await f.client.post(CHAT, json={**HELLO, "stream": True})
    assert (streamed.status_code, streamed.json()["error"]) == (503, error)
    assert "users are answered 503: s is OFFLINE" in caplog.text
    assert "503: The engine is OFFLINE" in caplog.text
    assert (await f.client.get("/health")).status_code == 503
    f.world.swarm.set_state("BOOTING")
    await f.world.until(lambda: f.world.groups.serving)
    assert (await f.client.get("/health")).status_code == 200


# --- clients that leave and come again ----------------------------------------------------------


async def test_one_connection_serves_many_requests_in_turn(f: Front) -> None:
    for number in range(6):
        body = {**HELLO, "stream": bool(number % 2), "x": number}
        assert (await f.client.post(CHAT, json=body)).status_code == 200
    await f.world.closed()
    assert len(f.world.swarm.ends) == 24
    assert len(f.world.context.tasks) == 1  # the watcher: no listener is left behind


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.world(settings(proxy={"max_body_mb": 1}))
async def test_a_large_body_without_a_length_is_refused_too(f: Front) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * (1 << 19)

    kind = {"content-type": "application/json"}
    answer = await f.client.post(CHAT, content=chunks(), headers=kind)
    assert answer.status_code == 413


# --- the rest -----------------------------------------------------------------------------------


async def test_models_and_health(f: Front) -> None:
    f.world.swarm.model = "/models/tiny"
    await f.world.until(lambda: f.world.server.watcher.pool)
    await f.world.until(lambda: f.world.server.watcher.pool.training_model_path == "/models/tiny")
    body = (await f.client.get("/v1/models")).json()
    assert body["object"] == "list"
    (card,) = body["data"]
    assert list(card) == [
        *["id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"]
    ]
    assert (card["id"], card["root"], card["owned_by"]) == ("tiny", "tiny", "vllm")
    assert card["permission"][0]["id"].startswith("modelperm-")
    assert (await f.client.get("/v1/models/tiny")).json()["id"] == "tiny"
    assert (await f.client.get("/v1/models/nope")).status_code == 404
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        answer = await f.client.request(method, path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert (await f.client.head("/health")).status_code == 405
    assert set((await f.client.get("/version")).json()) == {"version"}
