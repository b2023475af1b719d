"""The app around the engine: routes on offer, guard, shapes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.runtime.sockets import is_loopback
from engine.app import MAX_BODY, create_app, loopback_hosts
from engine.interface import Completion
from engine.server.episode_keys import make_key
from engine.server.lifecycle import Engine
from engine.storage.experiments import Experiments
from tests.support.engine.client import Clock, Driver, driving, wait_for
from tests.support.engine.fake_policy import Bench
from tests.support.fuzz import fuzz
from tests.support.served import client, served


def app_client(allowed: bool = True) -> httpx.AsyncClient:
    engine = Engine(Bench().factory)
    app = create_app(engine, allowed_hosts=loopback_hosts("127.0.0.1") if allowed else None)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:10086")


WIRE = {
    "get /health",
    "get /get_engine_status",
    "post /sync_train_config",
    "post /sync_train_code",
    "post /start_engine",
    "post /stop_engine",
    "post /claim_episode",
    "post /end_episode",
    "post /abort_episode",
    "post /can_continue_episode",
    "post /get_episode_buffer",
    "get /get_current_batch_rollout_pool_information",
    "post /agree_sync_weight",
    "get /get_server_experiment_dir",
    "get /get_verbose_logs",
    "post /replay_latest_llm_call",
    "post /v1/chat/completions",
    "post /v1/responses",
    "post /v1/messages",
}
TRAINERS = {
    "post /update_engine_status",
    "post /register_episode",
    "post /is_episode_claimed",
    "post /update_current_batch_rollout_pool_information_and_fetch_instruction",
    "post /push_verbose_log",
}


@pytest.mark.slow
@pytest.mark.parametrize("faithful", [False, True])
async def test_the_openapi_lists_the_offered_routes(faithful: bool) -> None:
    async with driving(faithful=faithful) as d:
        paths = (await d.get("/openapi.json"))["paths"]
        offered = {f"{next(iter(methods))} {path}" for path, methods in paths.items()}
        ours = {route for route in offered if " /ajetc/" in route or "tokenize" in route}
        assert ("post /tokenize" in ours, "post /detokenize" in ours) == (not faithful,) * 2
        assert offered - ours == (WIRE | TRAINERS if faithful else WIRE)
        assert {"get /ajetc/info", "get /ajetc/updates", "post /ajetc/reset"} <= ours
        assert {"post /ajetc/snapshot", "post /ajetc/sample"} <= ours
        assert (await d.http.get("/docs")).status_code == 200
        assert await d.get("/health") == {"status": "ok"}
        assert await d.get("http://engine//health") == {"status": "ok"}


@pytest.mark.parametrize("route", sorted(TRAINERS))
async def test_the_trainers_side_is_not_offered(idle: Driver, route: str) -> None:
    answer = await idle.post(route.removeprefix("post "), engine_status="ENGINE.ROLLING")
    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


async def test_code_is_refused(idle: Driver) -> None:
    headers = {"content-type": "application/zip"}
    answer = await idle.http.post("/sync_train_code", content=b"PK\x03\x04", headers=headers)
    assert answer.status_code == 400
    assert "does not run code" in answer.json()["detail"]


async def test_a_bad_job_is_refused_at_the_sync(idle: Driver) -> None:
    text = "ajet: {data: {train_batch_size: -1}}"
    answer = await idle.post("/sync_train_config", yaml_as_string=text)
    assert answer.status_code == 200
    assert answer.json()["success"] is False
    assert answer.json()["error"].startswith("ajet.data.train_batch_size: ")
    broken = (await idle.post("/sync_train_config", yaml_as_string="a: [")).json()
    assert "not YAML" in broken["error"]
    assert (await idle.post("/sync_train_config", yaml_as_string=5)).status_code == 422
    assert "No training config" in (await idle.post("/start_engine")).json()["error"]


async def test_a_job_is_checked_while_the_engine_runs_and_not_stored(d: Driver) -> None:
    text = "ajet: {trainer_common: {algorithm: {adv_estimator: gae}}}"
    refused = (await d.post("/ajetc/check_job", yaml_as_string=text)).json()
    assert refused["success"] is False
    assert "unknown algorithm 'gae'" in refused["error"]
    accepted = await d.post("/ajetc/check_job", yaml_as_string="ajet: {}")
    assert accepted.json() == {"success": True}
    assert (await d.get("/get_engine_status"))["engine_status"] == "ENGINE.ROLLING"


async def test_info() -> None:
    async with driving(experiments=Experiments(Path("/home/of/tests/engine"))) as d:
        before = await d.get("/ajetc/info")
        assert (before["policy"], before["step"], before["job"]) == (None, None, None)
        assert before["home"] == "/home/of/tests"
        await d.start(batch=3)
        info = await d.get("/ajetc/info")
        assert (info["policy"], info["context"], info["step"]) == ("fake", 256, 0)
        assert (info["damping"], info["max_tokens"]) == (0.2, 96)
        assert info["engine_status"] == "ENGINE.ROLLING"
        assert (info["job"]["batch_size"], info["job"]["hyper"]["lr"]) == (3, 5e-4)
        directory = await d.get("/get_server_experiment_dir")
        assert directory == {"server_experiment_dir": "/home/of/tests/engine"}


async def test_verbose_logs_have_times_and_tags(d: Driver) -> None:
    entries = (await d.get("/get_verbose_logs"))["entries"]
    assert [entry["message"] for entry in entries][-2:] == [
        "ENGINE.OFFLINE -> ENGINE.BOOTING",
        "ENGINE.BOOTING -> ENGINE.ROLLING",
    ]
    assert entries[0].keys() == {"timestamp", "tag", "message"}
    for number in range(60):
        d.engine.verbose.add("test", str(number))
    entries = (await d.get("/get_verbose_logs"))["entries"]
    assert [entry["message"] for entry in entries] == [str(k) for k in range(10, 60)]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:9"}, 200),
        ({"host": "[::1]:10086"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:10086"}, 403),
        ({"host": "[::1"}, 403),
        ({"origin": "http://127.0.0.1:10086"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
    ],
)
async def test_web_pages_are_kept_out(headers: dict[str, str], status: int) -> None:
    async with app_client() as http:
        answer = await http.post("/stop_engine", headers=headers)
        assert answer.status_code == status
        assert status == 200 or "detail" in answer.json()


async def test_any_host_is_allowed_where_that_was_chosen() -> None:
    async with app_client(allowed=False) as http:
        answer = await http.get("/health", headers={"host": "gpu-box"})
        assert answer.status_code == 200


@pytest.mark.parametrize("length", ["1" * 30, "-1", "\u00b2"])
async def test_long_bodies_are_refused(length: str) -> None:
    async with app_client() as http:
        headers = [(b"content-length", length.encode("latin-1"))]
        answer = await http.post("/end_episode", headers=headers, content=b"{}")
        assert answer.status_code == 413


@pytest.mark.slow
async def test_a_long_body_without_a_length_is_refused() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY // 1024 // 1024 + 2):
            yield b" " * 1024 * 1024

    async with app_client() as http:
        headers = {"content-type": "application/json"}
        answer = await http.post("/end_episode", headers=headers, content=endless())
        assert (answer.status_code, set(answer.json())) == (413, {"detail"})


async def test_an_unforeseen_error_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Engine) -> dict[str, object]:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(Engine, "counters", fail)
    async with app_client() as http:
        answer = await http.get("/get_current_batch_rollout_pool_information")
        assert answer.status_code == 500
        assert "ZeroDivisionError" in json.dumps(answer.json())


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.5", "example.org", "")))


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


RUNNING = ("BOOTING", "ROLLING", "ROLLING_POST", "WEIGHT_SYNCING")
LEGAL = {
    ("OFFLINE", "BOOTING"),
    *zip(RUNNING, (*RUNNING[1:], "ROLLING"), strict=True),
    *((state, "OFFLINE") for state in RUNNING),
}
JOB = "ajet: {data: {train_batch_size: 1}, rollout: {num_repeat: 2}}"


class Watched(Engine):
    """Keeps its transitions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.passed: list[tuple[str, str]] = []
        super().__init__(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status" and hasattr(self, "status") and value != self.status:
            before, after = (str(state).removeprefix("ENGINE.") for state in (self.status, value))
            self.passed.append((before, after))
        super().__setattr__(name, value)


def live_key(url: str) -> str:
    """Of a claimed episode, if there can be one now."""
    claim = {"client_uuid": "fuzz", "episode_type": "train", "discard_episode_timeout": 60}
    httpx.post(f"{url}/sync_train_config", json={"yaml_as_string": JOB})
    httpx.post(f"{url}/start_engine")
    key = httpx.post(f"{url}/claim_episode", json=claim).json().get("openai_api_key")
    return key or make_key("nobody", "x")


@pytest.mark.parametrize(
    "examples",
    [pytest.param(3, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.soak)],
)
@pytest.mark.timeout(600)
async def test_no_5xx_from_its_own_openapi(examples: int) -> None:
    bench = Bench()
    engine = Watched(bench.factory)
    app = create_app(engine)
    async with (
        app.router.lifespan_context(app),
        served(app) as url,
        client(url, 60.0) as http,
    ):
        statuses = await asyncio.to_thread(
            fuzz,
            url,
            examples,
            lambda: (
                {},
                {"Authorization": make_key("nobody", "x")},
                {"Authorization": live_key(url)},
            ),
        )
        assert len(statuses) > 20 * examples
        assert set(engine.passed) <= LEGAL
        d = Driver(http, engine, bench, Clock())
        await d.post("/stop_engine")
        await d.start(batch=1, repeat=2)
        _, step = await d.status()
        assert step is not None
        await d.group("t")
        await d.until("ROLLING", step + 1)
