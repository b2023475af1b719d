"""What holds for every route that answers: from raw bytes, in the form of each dialect."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.capped_clock import loop_time
from tests.support.proxy.front import BODIES, FIRST, LAST, Front, fronted, sse
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import wire

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
async def test_a_whole_answer_is_a_single_body(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one:
        await one.ask("POST", path, BODIES[path], accept_encoding="gzip, br")
        answer = await one.answer()
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


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_is_chunked_and_unbuffered(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one:
        await one.ask("POST", path, streamed(path), accept_encoding="gzip, br")
        status, headers = await one.head()
        assert status == 200
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["transfer-encoding"] == "chunked"
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        assert "content-encoding" not in headers
        parts = [part async for part in one.chunks()]
        assert all(part.endswith(b"\n\n") for part in parts)  # events are never cut
        assert LAST[path] in parts[-1]
        await one.ask("GET", "/health")  # the connection is still good
        assert (await one.answer()).status == 200
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
async def test_a_body_of_ten_megabytes_is_accepted(tmp_path: Path, path: str) -> None:
    long = "word " * 2_000_000
    body = json.loads(json.dumps(BODIES[path]).replace("Say hello.", long))
    async with fronted(tmp_path) as f, wire(f.url) as one:
        await one.ask("POST", path, body)
        assert (await one.answer(20.0)).status == 200
        await until_closed(f)
        assert len(json.dumps(f.world.swarm.chats[0][1])) > 10_000_000


@pytest.mark.parametrize("path", PATHS)
async def test_deltas_are_forwarded_as_they_arrive(tmp_path: Path, path: str) -> None:
    semaphore = asyncio.Semaphore(0)

    async def on_token(name: str, index: int) -> None:
        await semaphore.acquire()

    async def words(name: str, body: dict[str, Any], index: int) -> str:
        return "alpha beta gamma delta"

    async with (
        ScriptedSwarm(answer=words) as swarm,
        fronted(tmp_path, swarm, settings(proxy={"answer": "live", "keepalive": 60.0})) as f,
        wire(f.url) as one,
    ):
        swarm.streaming, swarm.on_token = "tokens", on_token
        await one.ask("POST", path, streamed(path))
        await one.head()
        parts, received = one.chunks(), b""
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


async def test_an_undelivered_answer_is_replayed(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
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
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one:
        bad: list[bytes] = [b"{", b"[]", b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'"text"']
        bad.append(json.dumps(streamed(path, temperature="hot", stream=stream)).encode())
        bad.append(json.dumps({**BODIES[path], "stream": "maybe"}).encode())
        for data in bad:
            await one.ask("POST", path, data, x_request_id="mine-1")
            answer = await one.answer()
            assert answer.status == 400, data[:50]
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-request-id"] == "mine-1"
            body = answer.json()
            assert body == {"detail": "There was an error parsing the body"} or message_of(
                path, body
            )
        await one.send(
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n"
            "content-length: 2\r\n\r\n{}"
        )
        assert (await one.answer()).status == 400
        assert not f.world.state.groups
        assert (await f.metrics())['ajet_requests_refused_total{status="400"}'] == len(bad) + 1


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens"])
async def test_an_unknown_model_and_a_body_that_is_too_large(tmp_path: Path, path: str) -> None:
    named = settings(proxy={"served_model_name": "tiny", "max_body_mb": 1})
    async with fronted(tmp_path, configured=named) as f, wire(f.url) as one:
        body = BODIES.get(path) or BODIES["/v1/messages"]
        for stream in (False, True):
            await one.ask("POST", path, {**body, "model": "nope", "stream": stream})
            answer = await one.answer()
            assert answer.status == 404
            assert "`nope` does not exist" in answer.json()["error"]["message"]
            assert (answer.json().get("type") == "error") == path.startswith("/v1/messages")
        await one.ask("POST", path, b" " * (1 << 21))
        answer = await one.answer()
        assert answer.status == 413
        assert "1 MiB" in answer.json()["error"]["message"]
        assert answer.headers["connection"] == "close"
        assert await one.closed() == b""


async def broken(name: str, body: dict[str, Any], index: int) -> Any:
    return RuntimeError("Traceback: worker died at /srv/model on 10.1.2.3")


@pytest.mark.parametrize("path", PATHS)
async def test_no_candidate_is_a_503_in_each_dialect(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fronted(tmp_path, configured=ONCE) as f, wire(f.url) as one:
        f.world.swarm.answer = broken
        await one.ask("POST", path, BODIES[path])
        answer = await one.answer()
        assert answer.status >= 500
        message_of(path, answer.json())
        monkeypatch.setattr("proxy.api.handler.SOON", 60.0)
        await one.ask("POST", path, {**streamed(path), "user": "other"})
        assert (await one.answer()).status == answer.status
        monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
        await one.ask("POST", path, streamed(path))
        body = (await one.answer()).body.decode()
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
    tmp_path: Path, path: str, stream: bool
) -> None:
    async with fronted(tmp_path) as f:
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
async def test_a_disconnect_before_any_claim(tmp_path: Path, path: str) -> None:
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        fronted(tmp_path, swarm) as f,
    ):
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
        assert not swarm.claims
        assert len(f.world.context.tasks) == 1  # the watcher: no listener is left behind


@pytest.mark.parametrize("path", [*PATHS, "/v1/messages/count_tokens", "/tokenize"])
async def test_a_disconnect_is_noticed_before_the_group_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
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
    async with fronted(tmp_path) as f:
        async with wire(f.url) as one:
            await one.ask("POST", path, BODIES.get(path) or BODIES["/v1/messages"])
            async with asyncio.timeout(60):
                await asked.wait()
        async with asyncio.timeout(60):
            await left.wait()
        await f.world.until(lambda: not f.handler.metrics.open)
        assert not f.world.state.groups


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_over_http_1_0_ends_with_the_connection(tmp_path: Path, path: str) -> None:
    data = json.dumps(streamed(path))
    async with fronted(tmp_path) as f, wire(f.url) as one:
        await one.send(
            f"POST {path} HTTP/1.0\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n{data}"
        )
        answer = await one.answer()
        assert answer.status == 200
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert LAST[path] in answer.body
        assert sse(answer.body.decode())
        await until_closed(f)


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_the_clients_own_request_id_is_returned(
    tmp_path: Path, path: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with fronted(tmp_path, configured=ONCE) as f, wire(f.url) as one:
        await one.ask("POST", path, {**BODIES[path], "stream": stream}, x_request_id="my-id-1")
        answer = await one.answer()
        assert answer.headers["x-request-id"] == "my-id-1"
        assert "my-id-1" in answer.body.decode()
        await f.world.closed()
        (group,) = f.world.state.groups.values()
        assert group.request_id == "my-id-1"
        f.world.swarm.answer = broken
        other = {**BODIES[path], "stream": stream, "user": "other"}
        await one.ask("POST", path, other, x_request_id="my-id-2")
        assert (await one.answer()).headers["x-request-id"] == "my-id-2"
        await f.world.closed()
        (line,) = [one for one in caplog.messages if "my-id-2" in one and path in one]
        assert "127.0.0.1" in line


# --- no way out ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_an_internal_error_is_reported_without_its_details(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(parsed: Any) -> None:
        raise KeyError("/srv/secret")

    monkeypatch.setattr("proxy.api.handler.public_answer", fault)
    async with fronted(tmp_path) as f, wire(f.url) as one:
        for stream, begun in ((False, False), (True, False), (True, True)):
            monkeypatch.setattr("proxy.api.handler.SOON", 0.0 if begun else 60.0)
            await one.ask("POST", path, {**BODIES[path], "stream": stream, "user": str(begun)})
            answer = await one.answer()
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
