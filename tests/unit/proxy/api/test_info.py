"""Routes beside the answers: models, health, metrics, tokens and schemas."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ajet_swarm.api.wire import SwarmWire
from core.settings import UpstreamSettings
from proxy.api.context_window import NOT_FOUND
from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.request import Dialect
from proxy.dialects.responses import RESPONSES
from proxy.dialects.tokenize import upstream_error
from proxy.http.exchange import json_response
from proxy.servers.observe import ObserveClient
from tests.support.proxy.front import BODIES, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import served
from tests.support.wire import wire

MESSAGES_PATH = "/v1/messages"


COUNT = "/v1/messages/count_tokens"


JSON = {"content-type": "application/json"}


class Upstream:
    """A server with a tokenizer."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        path = scope["path"]
        answer, status = b'{"paths":{"/tokenize":{},"/detokenize":{}}}', 200
        if path != "/openapi.json":
            self.requests.append((path, json.loads(body)))
            self.keys.append(request.headers.get("authorization", ""))
            answer, status = b'{"count":3,"max_model_len":4096,"tokens":[1,2,3]}', self.status
        await json_response(answer, status)(scope, receive, send)


@pytest.fixture
async def upstream(f: Front) -> AsyncIterator[Upstream]:
    """The server of the front."""
    made = Upstream()
    async with served(made) as made.url:
        f.world.server.client = SwarmWire(made.url, f.world.line, "me")
        yield made


# --- routes -------------------------------------------------------------------------------------


@pytest.mark.world(settings(proxy={"served_model_name": "tiny"}))
async def test_the_named_model_comes_first(f: Front) -> None:
    (card,) = (await f.client.get("/v1/models")).json()["data"]
    assert card["id"] == "tiny"
    assert (await f.client.get("/v1/models/tiny")).json()["id"] == "tiny"
    for name in ("nope", "org/nope", "org%2Fnope"):
        lost = await f.client.get(f"/v1/models/{name}")
        assert lost.status_code == 404
        assert lost.json()["error"]["type"] == "NotFoundError"


async def test_health_follows_the_engine(f: Front) -> None:
    for state, status in (("WEIGHT_SYNCING", 200), ("OFFLINE", 503), ("ROLLING", 200)):
        f.world.swarm.set_state(state, 1)
        await f.world.swarm.until(
            lambda: f.world.server.watcher.current.display_state == f.world.swarm.state
        )
        for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
            answer = await f.client.request(method, path)
            assert (answer.status_code, answer.content) == (status, b"")
            assert answer.headers["content-length"] == "0"


async def test_health_is_good_while_one_server_answers(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm() as swarm,
        ScriptedSwarm() as other,
        fronted(tmp_path, swarm, others={"b": other}) as f,
    ):
        for stopped, name, status in ((swarm, "s", 200), (other, "b", 503)):
            stopped.set_state("OFFLINE", 1)
            watcher = f.world.context.servers[name].watcher
            await stopped.until(lambda seen=watcher: seen.current.display_state == "OFFLINE")
            assert (await f.client.get("/health")).status_code == status


async def test_stored_responses_are_404(f: Front) -> None:
    for method, path in (("GET", ""), ("POST", "/cancel")):
        answer = await f.client.request(method, f"/v1/responses/resp_1{path}")
        assert answer.status_code == 404
        assert answer.json()["error"] == {
            "message": "Response with id 'resp_1' not found.",
            "type": "invalid_request_error",
            "param": "response_id",
            "code": 404,
        }


async def test_the_document_names_every_route(f: Front) -> None:
    body = (await f.client.get("/openapi.json")).json()
    assert body["openapi"].startswith("3.")
    for path, methods in body["paths"].items():
        for method in methods:
            real = path.replace("{model}", f.world.groups.models()[0])
            answer = await f.client.request(method, real, json={})
            assert answer.status_code not in (405, 500), path
            assert answer.content != NOT_FOUND or path in ("/tokenize", "/detokenize"), path


# --- tokens -------------------------------------------------------------------------------------


async def test_tokens_of_a_prompt_are_those_of_its_usage(f: Front) -> None:
    body = BODIES[MESSAGES_PATH]
    count_body = {key: value for key, value in body.items() if key != "max_tokens"}
    guess = (await f.client.post(COUNT, json=count_body)).json()
    assert guess["input_tokens"] > 0
    usage = (await f.client.post(f"{MESSAGES_PATH}?beta=true", json=body)).json()["usage"]
    result = (await f.client.post(f"{COUNT}?beta=true", json=count_body)).json()
    assert result == {
        "input_tokens": usage["input_tokens"],
        "context_management": {"original_input_tokens": usage["input_tokens"]},
    }
    stream = await f.client.post(MESSAGES_PATH, json={**body, "stream": True, "top_p": 0.5})
    first = json.loads(stream.text.split("data: ", 2)[1].split("\n")[0])
    assert first["message"]["usage"]["input_tokens"] == usage["input_tokens"]
    await f.world.closed()


async def test_an_invalid_token_count_is_ignored(f: Front) -> None:
    bodies: tuple[dict[str, Any], ...] = ({}, {"messages": "no"}, {"messages": []})
    for body in bodies:
        answer = await f.client.post(COUNT, json=body)
        assert answer.status_code == 400
        assert answer.json()["type"] == "error"
    answer = await f.client.post(COUNT, content=b"{}")
    assert answer.status_code == 400


async def test_token_routes_without_an_upstream_tokenizer_are_404(f: Front) -> None:
    for path in ("/tokenize", "/detokenize"):
        answer = await f.client.post(path, json={"prompt": "hello"})
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


async def test_token_routes_with_an_upstream_tokenizer_are_forwarded(
    f: Front, upstream: Upstream
) -> None:
    answer = await f.client.post("/tokenize", json={"prompt": "hello"})
    assert answer.status_code == 200
    assert answer.json()["count"] == 3
    assert upstream.requests == [("/tokenize", {"prompt": "hello"})]
    body = (await f.client.post(COUNT, json=BODIES[MESSAGES_PATH])).json()
    assert body["input_tokens"] == 3
    assert upstream.requests[-1][1]["messages"] == BODIES[MESSAGES_PATH]["messages"]
    upstream.status = 400
    before = len(upstream.requests)
    assert (await f.client.post("/detokenize", json={"tokens": "no"})).status_code == 400
    assert len(upstream.requests) == before
    assert (await f.client.post("/detokenize", json={"tokens": [1]})).status_code == 400
    assert len(upstream.requests) == before + 1
    upstream.status = 500
    failed = await f.client.post("/detokenize", json={"tokens": [1]})
    assert failed.status_code == 503
    assert failed.headers["retry-after"]
    assert (await f.client.post(COUNT, json=BODIES[MESSAGES_PATH])).json()["input_tokens"] > 0


async def test_the_server_named_by_the_model_counts_tokens(tmp_path: Path) -> None:
    first, second = Upstream(), Upstream()
    async with (
        ScriptedSwarm() as b,
        fronted(tmp_path, others={"b": b}) as f,
        served(first) as url_s,
        served(second) as url_b,
    ):
        for name, url in {"s": url_s, "b": url_b}.items():
            f.world.context.servers[name].client = SwarmWire(url, f.world.line, "me")
        for model in ("b", "s", "other"):
            body = {"model": model, "prompt": "hello"}
            assert (await f.client.post("/tokenize", json=body)).json()["count"] == 3
        assert [body["model"] for _, body in second.requests] == ["b"]
        assert [body["model"] for _, body in first.requests] == ["s", "other"]
        second.status = 500
        answer = await f.client.post("/tokenize", json={"model": "b", "prompt": "hello"})
        assert answer.status_code == 503
        assert len(first.requests) == 2


BAD: list[tuple[str, Any, str]] = [
    ("/tokenize", b"{", "body.1"),
    ("/tokenize", [], "body"),
    ("/tokenize", {}, "body.prompt"),
    ("/tokenize", {"prompt": 5}, "body.prompt"),
    ("/tokenize", {"messages": "no"}, "body.messages"),
    ("/tokenize", {"messages": [{}]}, "body.messages.0.role"),
    ("/detokenize", {}, "body.tokens"),
    ("/detokenize", {"tokens": "no"}, "body.tokens"),
    ("/detokenize", {"tokens": [1, "x"]}, "body.tokens.1"),
    ("/detokenize", {"tokens": [-1]}, "body.tokens.0"),
]


@pytest.mark.parametrize(("path", "body", "param"), BAD)
async def test_invalid_token_requests_are_refused_in_vllms_form(
    f: Front, upstream: Upstream, path: str, body: Any, param: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await f.client.post(path, content=data, headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "Bad Request", param)
    assert not upstream.requests
    plain = await f.client.post(path, content=b'{"prompt": "x", "tokens": []}')
    assert plain.json()["error"]["message"].startswith("Unsupported Media Type")


@pytest.mark.parametrize(
    ("status", "result", "numbers"),
    [
        (
            422,
            {"detail": [{"type": "list_type", "loc": ["body", "tokens"], "msg": "no", "input": 5}]},
            (400, "Bad Request", "body.tokens"),
        ),
        (400, {"detail": "is longer"}, (400, "BadRequestError", None)),
        (400, {"error": {"message": "own", "type": "t", "param": "p"}}, (400, "t", "p")),
        (404, {"detail": "No policy is loaded."}, (503, "Service Unavailable", None)),
        (418, None, (400, "BadRequestError", None)),
    ],
)
def test_errors_of_an_upstream_are_converted_to_vllms_form(
    status: int, result: Any, numbers: tuple[int, str, str | None]
) -> None:
    body = json.dumps(result).encode() if result else b"tea"
    no = upstream_error(status, body)
    if no is None:
        assert result["error"]["type"] == numbers[1]
    else:
        assert (no.status, no.kind, no.param) == numbers


async def test_an_observed_upstream_gets_its_own_key_and_model_name(
    f: Front, upstream: Upstream
) -> None:
    settings = UpstreamSettings(url=upstream.url, key="sk-upstream", model="big")
    f.world.server.client = ObserveClient(settings, f.world.line, "me")
    body = {"model": "tiny", "prompt": "hello"}
    mine = {"authorization": "Bearer sk-mine"}
    assert (await f.client.post("/tokenize", json=body, headers=mine)).status_code == 200
    assert upstream.requests == [("/tokenize", {"model": "big", "prompt": "hello"})]
    assert upstream.keys == ["Bearer sk-upstream"]
    upstream.status = 401  # ours is not taken, which is not the user's fault
    assert (await f.client.post("/tokenize", json=body)).status_code == 503


@pytest.mark.parametrize("path", ["/tokenize", COUNT])
async def test_an_unreachable_upstream_is_503(f: Front, path: str) -> None:
    f.world.server.client = SwarmWire("http://127.0.0.1:9", f.world.line, "me")
    answer = await f.client.post(path, json=BODIES[MESSAGES_PATH])
    assert answer.status_code == (503 if path == "/tokenize" else 200)
    assert "127.0.0.1" not in answer.text


CHAT_PATH = "/v1/chat/completions"


SAMPLE = re.compile(
    r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-z_]+="([^"\\\n]|\\.)*",?)+\})? ([-+]?[0-9.e+-]+|\+Inf)'
)


FAMILIES = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:request_success_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:generation_tokens_total": "counter",
    "vllm:e2e_request_latency_seconds": "histogram",
    "ajet_requests_refused_total": "counter",
    "ajet_episodes_total": "counter",
    "ajet_groups_closed_total": "counter",
    "ajet_groups_dead_total": "counter",
    "ajet_rewards_sent_total": "counter",
    "ajet_keepalives_total": "counter",
    "ajet_groups_open": "gauge",
    "ajet_groups_queued": "gauge",
    "ajet_episodes_held": "gauge",
    "ajet_engine_state": "gauge",
    "ajet_global_step": "gauge",
}
"""What docs/guide/serving.md and the dashboard name."""


async def test_the_output_is_valid_prometheus_text(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        answer = await f.client.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.text.endswith("\n")
        families, family = {}, ""
        for one in answer.text.splitlines():
            if one.startswith("# HELP "):
                family = one.split()[2]
            elif one.startswith("# TYPE "):
                assert one.split()[2] == family
                families[family] = one.split()[3]
            else:
                assert SAMPLE.fullmatch(one), one
                assert one.startswith(family)
    assert families == FAMILIES


@pytest.mark.slow
async def test_requests_are_counted_by_their_result(f: Front) -> None:
    for path, body in BODIES.items():
        assert (await f.client.post(path, json=body)).is_success
    await f.client.post(CHAT_PATH, json={**BODIES[CHAT_PATH], "stream": True})
    await f.client.post(CHAT_PATH, json={})
    await f.world.closed()
    metrics = await f.metrics()
    model = f'model_name="{f.world.groups.models()[0]}"'
    name = f'engine="0",{model}'
    done = f'vllm:request_success_total{{engine="0",finished_reason="stop",{model}}}'
    assert metrics[done] == 5
    assert metrics[f"vllm:prompt_tokens_total{{{name}}}"] == 5 * 7
    assert metrics[f"vllm:generation_tokens_total{{{name}}}"] == 5 * 4  # of the winners alone
    latency = "vllm:e2e_request_latency_seconds"
    assert metrics[f"{latency}_count{{{name}}}"] == 5
    assert metrics[f'{latency}_bucket{{engine="0",le="+Inf",{model}}}'] == 5
    assert 0 < metrics[f"{latency}_sum{{{name}}}"] < 30
    assert metrics['ajet_requests_refused_total{status="400"}'] == 1
    assert metrics['ajet_episodes_total{outcome="ended"}'] == 20
    assert metrics["ajet_rewards_sent_total"] == 20
    assert metrics['ajet_groups_closed_total{phase="DONE"}'] == 5
    assert metrics["ajet_episodes_held"] == 0
    assert metrics['ajet_global_step{server="s"}'] >= 1
    assert metrics[f"vllm:num_requests_running{{{name}}}"] == 0


@pytest.mark.world(sync_seconds=None)
async def test_running_and_waiting_requests_are_gauges(f: Front) -> None:
    f.world.swarm.delay = 30.0
    model = f'model_name="{f.world.groups.models()[0]}"'
    name = f'engine="0",{model}'
    async with wire(f.url) as one, wire(f.url) as two:
        await one.ask("POST", CHAT_PATH, BODIES[CHAT_PATH])
        await f.world.until(lambda: len(f.world.swarm.chats) == 4)
        metrics = await f.metrics()
        assert metrics[f"vllm:num_requests_running{{{name}}}"] == 1
        assert metrics[f"vllm:num_requests_waiting{{{name}}}"] == 0
        assert metrics["ajet_episodes_held"] == 4
        assert metrics['ajet_groups_open{phase="GENERATING"}'] == 1
        assert metrics['ajet_engine_state{server="s",state="ROLLING"}'] == 1
        f.world.swarm.set_state("WEIGHT_SYNCING", 1)
        await f.world.until(
            lambda: f.world.server.watcher.current.display_state == "WEIGHT_SYNCING"
        )
        await two.ask("POST", CHAT_PATH, {**BODIES[CHAT_PATH], "user": "two"})
        await f.world.until(lambda: f.world.groups.waiting)
        metrics = await f.metrics()
        assert metrics[f"vllm:num_requests_waiting{{{name}}}"] >= 1
        assert metrics["ajet_groups_queued"] >= 1
    await f.world.closed()
    metrics = await f.metrics()
    assert metrics['ajet_groups_closed_total{phase="ABORTED"}'] == 2
    assert metrics[f'vllm:request_success_total{{engine="0",finished_reason="stop",{model}}}'] == 0


@pytest.mark.world(settings(rating={"window": 0.0}))
async def test_dead_groups_are_counted(f: Front) -> None:

    async def same(ctx: object) -> list[float]:
        return [1.0] * 4

    f.world.source.scorer = same
    await f.client.post(CHAT_PATH, json=BODIES[CHAT_PATH])
    await f.world.closed()
    assert (await f.metrics())['ajet_groups_dead_total{cause="equal rewards"}'] == 1


async def test_histogram_buckets_are_cumulative(f: Front) -> None:
    for seconds in (0.1, 0.3, 0.4, 1e9):
        f.handler.metrics.count_answer([], seconds)
    metrics = await f.metrics()
    labels = f'model_name="{f.world.groups.models()[0]}"'
    bounds = ("0.3", "0.5", "960.0", "+Inf")
    assert [
        metrics[f'vllm:e2e_request_latency_seconds_bucket{{engine="0",le="{bound}",{labels}}}']
        for bound in bounds
    ] == [2, 3, 3, 4]


async def test_two_proxies_count_for_themselves(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with fronted(tmp_path / "a") as one, fronted(tmp_path / "b") as other:
        await one.client.post(CHAT_PATH, json={})
        refused = 'ajet_requests_refused_total{status="400"}'
        assert ((await one.metrics())[refused], (await other.metrics()).get(refused)) == (1, None)


class Recording(dict[str, Any]):
    """A body that records which of its fields are looked at."""

    def __init__(self, *pairs: Any) -> None:
        super().__init__(*pairs)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


async def test_the_document_is_valid(f: Front) -> None:
    import schemathesis  # a quarter of a second, and each worker collects all tests

    document = (await f.client.get("/openapi.json")).json()
    schemathesis.openapi.from_dict(document).validate()
    assert document["info"]["title"] == "ajet-console"
    for path in ("/docs", "/redoc"):
        assert (await f.client.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("path", "dialect"),
    zip(BODIES, (CHAT, COMPLETIONS, RESPONSES, MESSAGES), strict=True),
    ids=BODIES,
)
async def test_the_document_has_each_field_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, dialect: Dialect
) -> None:
    seen: list[Recording] = []

    def decode(data: bytes, content_type: str) -> Recording:
        seen.append(Recording(msgspec.json.decode(data)))
        return seen[-1]

    def convert(value: Any, shape: Any, **more: Any) -> Any:
        if isinstance(value, Recording) and isinstance(shape, type):
            value.names |= set(getattr(shape, "__struct_encode_fields__", ()))
        return original(value, shape, **more)

    original = msgspec.convert
    monkeypatch.setattr(msgspec, "convert", convert)
    monkeypatch.setattr("proxy.dialects.request.decode", decode)
    more = {"seed": 1}  # or a chat has common fields only, and skips most checks
    dialect.read(msgspec.json.encode({**BODIES[path], **more}), {}, "")
    async with fronted(tmp_path) as f:
        document = (await f.client.get("/openapi.json")).json()
    content = document["paths"][path]["post"]["requestBody"]["content"]
    schema = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    fields = document["components"]["schemas"][schema]["properties"].keys()
    assert len(seen[0].names) > 15
    assert seen[0].names - fields == set()
