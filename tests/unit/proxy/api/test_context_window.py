"""The window of the model and the tokens of a prompt."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxy.api.context_window
from ajet_swarm.api.watcher import ServerStatus
from core.settings import ProxySettings
from engine.app import MAX_BODY
from engine.app import create_app as engine_app
from engine.server.lifecycle import Engine
from proxy.api.handler import RequestHandler
from proxy.api.prompt_tokens import (
    BYTES_PER_TOKEN,
    IMAGE_TOKENS,
    MAX_EXACT,
    MAX_SAMPLES,
    TokenEstimator,
)
from proxy.dialects.messages import read_count, read_messages
from proxy.dialects.request import ChatRequest
from proxy.endpoint import create_app
from proxy.http.server import http_config
from tests.support.engine.client import Driver
from tests.support.engine.fake_policy import Bench
from tests.support.proxy.observed import Observed, observed
from tests.support.proxy.world import world
from tests.support.scripted.openai import ScriptedOpenAI
from tests.support.served import client, served

pytestmark = pytest.mark.slow


LONG = "word " * 5000


MESSAGES = [{"role": "user", "content": LONG}]


LONG_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": MESSAGES},
    "/v1/completions": {"model": "m", "prompt": LONG},
    "/v1/responses": {"model": "m", "input": LONG},
    "/v1/messages": {"model": "m", "max_tokens": 16, "messages": MESSAGES},
}


# --- observe mode -------------------------------------------------------------------------------


@pytest.fixture
def gauge() -> TokenEstimator:
    return TokenEstimator()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", LONG_BODIES)
async def test_a_prompt_that_is_too_long_is_a_400_before_anything_is_asked(
    o: Observed, path: str, stream: bool
) -> None:
    answer = await o.client.post(path, json={**LONG_BODIES[path], "stream": stream})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    assert "maximum context length is 4096 tokens" in answer.text
    assert "5000 input tokens" in answer.text
    assert not o.upstream.calls
    assert not o.world.state.groups


async def test_the_error_text_equals_that_of_a_real_server(o: Observed) -> None:
    plain = (await o.post(LONG)).json()["error"]
    assert plain == {
        "message": "This model's maximum context length is 4096 tokens. However, your prompt "
        "contains 5000 input tokens. Please reduce the length of the input prompt. "
        "(parameter=input_tokens, value=5000)",
        "type": "BadRequestError",
        "param": "input_tokens",
        "code": 400,
    }
    message = (await o.post("word " * 2000, max_tokens=3000)).json()["error"]["message"]
    assert (
        "you requested 3000 output tokens and your prompt contains at least 2000 input tokens, "
        "for a total of at least 5000 tokens. "
    ) in message
    full = (await o.post("word " * 2000, max_tokens=4096)).json()["error"]["message"]
    assert "contains 10000 characters (more than 0 characters, which is the upper bound" in full
    assert "or the number of requested output tokens" in message


@pytest.mark.parametrize(
    ("words", "wanted", "status", "counted"),
    [
        (10, None, 200, 0),
        (4095, None, 200, 1),
        (4096, None, 400, 1),
        (1000, 3096, 200, 1),
        (1001, 3096, 400, 1),
        (10, 1000, 200, 0),
    ],
)
async def test_the_upstream_counts_tokens_only_of_prompts_that_may_be_too_long(
    o: Observed, words: int, wanted: int | None, status: int, counted: int
) -> None:
    more = {} if wanted is None else {"max_tokens": wanted}
    assert (await o.post("w " * words, **more)).status_code == status
    assert o.upstream.requests["/tokenize"] == counted


async def test_without_a_tokenizer_or_a_window_the_upstream_decides(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as upstream:
        upstream.tokenizer = False
        async with observed(tmp_path, upstream) as o:
            assert (await o.post(LONG)).status_code == 200
    async with ScriptedOpenAI() as upstream:
        upstream.context = None
        (tmp_path / "b").mkdir()
        async with observed(tmp_path / "b", upstream) as o:
            assert (await o.post(LONG)).status_code == 200
            assert (await models(o))["max_model_len"] is None


async def models(o: Observed) -> Any:
    return (await o.client.get("/v1/models")).json()["data"][0]


async def test_the_model_and_its_window_are_listed(o: Observed) -> None:
    await o.world.until(lambda: o.world.server.watcher.pool)
    card = await models(o)
    assert (card["id"], card["max_model_len"]) == ("tiny", 4096)


@pytest.mark.parametrize("openapi", [True, False])
async def test_token_routes_of_the_upstream_are_forwarded(tmp_path: Path, openapi: bool) -> None:
    async with ScriptedOpenAI(key="k") as upstream:
        upstream.openapi = openapi
        async with observed(tmp_path, upstream, {"key": "k"}) as o:
            response = await o.client.post("/tokenize", json={"model": "ours", "prompt": "a b c"})
            assert response.json()["count"] == 3
            back = await o.client.post("/detokenize", json={"model": "ours", "tokens": [1, 2]})
            assert back.json() == {"prompt": "1 2"}


@pytest.mark.parametrize("openapi", [True, False])
async def test_token_routes_are_404_without_an_upstream_route(
    tmp_path: Path, openapi: bool
) -> None:
    async with ScriptedOpenAI() as upstream:
        upstream.tokenizer, upstream.openapi = False, openapi
        async with observed(tmp_path, upstream) as o:
            response = await o.client.post("/tokenize", json={"prompt": "a"})
            assert response.status_code == 404
            assert response.json() == {"detail": "Not Found"}


async def test_count_tokens_is_exact_if_possible(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "one two three"}]}
    async with observed(tmp_path) as o:
        response = await o.client.post("/v1/messages/count_tokens", json=body)
        assert response.json()["input_tokens"] == 3
    async with ScriptedOpenAI() as upstream:
        upstream.tokenizer = False
        (tmp_path / "b").mkdir()
        async with observed(tmp_path / "b", upstream) as o:
            response = await o.client.post("/v1/messages/count_tokens", json=body)
            assert response.json()["input_tokens"] > 0


async def test_an_invalid_tokenizer_response_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nonsense(*_: Any) -> tuple[int, bytes]:
        return 200, b'{"tokens": []}'

    async with observed(tmp_path) as o:
        monkeypatch.setattr(proxy.api.context_window, "ask", nonsense)
        assert (await o.post(LONG)).status_code == 200


@pytest.mark.upstream(tokenizer=False)
async def test_too_many_characters_are_refused_without_a_tokenizer(o: Observed) -> None:
    response = await o.post("hi", max_tokens=4096)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(
        "This model's maximum context length is 4096 tokens. However, you requested 4096 "
        "output tokens and your prompt contains 2 characters (more than 0 characters, "
        "which is the upper bound for 0 input tokens)."
    )
    assert not o.upstream.calls
    assert (await o.post("hi", max_tokens=4095)).status_code == 200


async def test_an_unreachable_server_is_not_asked_to_count(
    o: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = SimpleNamespace(current=ServerStatus(), pool=None)
    monkeypatch.setattr(o.world.server, "watcher", watcher)
    response = await o.client.post("/tokenize", json={"prompt": "x"})
    assert response.status_code == 503
    assert response.headers["retry-after"]
    body = {"messages": [{"role": "user", "content": "hello"}]}
    counted = await o.client.post("/v1/messages/count_tokens", json=body)
    assert counted.json()["input_tokens"] >= 1
    assert not o.upstream.requests["/tokenize"]


# --- the embedded engine ------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def embedded(home: Path, *, strict: bool) -> AsyncIterator[tuple[httpx.AsyncClient, Engine]]:
    """A front on an engine in this loop, ROLLING, whose policy has a window of 256 bytes."""
    bench = Bench()
    async with contextlib.AsyncExitStack() as stack:
        engine = Engine(bench.factory, strict_context=strict)
        app = engine_app(engine)
        await stack.enter_async_context(app.router.lifespan_context(app))
        url = await stack.enter_async_context(served(app))
        http = await stack.enter_async_context(client(url))
        driver = Driver(http, engine, bench, None)  # type: ignore[arg-type]  # it needs no clock
        await driver.start(batch=8, repeat=2)
        await driver.until("ROLLING")
        swarm: Any = SimpleNamespace(url=url)
        w = await stack.enter_async_context(world(home, swarm, watched=True))
        front = create_app(w.context, w.groups, handler=RequestHandler(w.context, w.groups))
        base = await stack.enter_async_context(
            served(front, http_config(w.context.settings.proxy, front))
        )
        await w.until(lambda: w.server.info.context)
        yield await stack.enter_async_context(client(base)), engine


@pytest.mark.parametrize("stream", [False, True])
async def test_a_strict_engine_gets_no_prompt_that_it_would_refuse(
    tmp_path: Path, stream: bool
) -> None:
    async with embedded(tmp_path, strict=True) as (client, engine):
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}
        answer = await client.post("/v1/chat/completions", json={**body, "stream": stream})
        assert answer.status_code == 400
        assert "maximum context length is 256 tokens" in answer.text
        assert not any(one.call_count for one in engine.pool)
        body["messages"] = [{"role": "user", "content": "x" * 130}]
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def test_a_legacy_prompt_is_sent_without_a_template(tmp_path: Path) -> None:
    async with embedded(tmp_path, strict=False) as (client, _):
        chat = {"model": "m", "messages": [{"role": "user", "content": "Say"}], "max_tokens": 4}
        wrapped = (await client.post("/v1/chat/completions", json=chat)).json()["usage"]
        for prompt in ("Say", [83, 97, 121]):
            body = {"model": "m", "prompt": prompt, "max_tokens": 4}
            response = await client.post("/v1/completions", json=body)
            assert response.status_code == 200, response.text
            assert response.json()["usage"]["prompt_tokens"] == 3 < wrapped["prompt_tokens"]
        long = {"model": "m", "prompt": "x" * 400, "max_tokens": 4}
        cut = await client.post("/v1/completions", json=long)
        assert 0 < cut.json()["usage"]["prompt_tokens"] <= 252


async def test_an_engine_that_truncates_gets_the_prompt(tmp_path: Path) -> None:
    async with embedded(tmp_path, strict=False) as (client, _):
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        response = await client.post("/v1/messages/count_tokens", json=body)
        assert response.json()["input_tokens"] == answer.json()["usage"]["prompt_tokens"]


async def test_a_prompt_the_engine_cannot_read_is_refused_without_retry_after(
    tmp_path: Path,
) -> None:
    async with embedded(tmp_path, strict=False) as (client, _):

        def chat_body(messages: Any) -> dict[str, Any]:
            return {"model": "m", "messages": messages}

        parts = chat_body([{"role": "user", "content": ["hello", {"type": "text", "text": "you"}]}])
        assert (await client.post("/v1/chat/completions", json=parts)).status_code == 200
        nobody = await client.post(
            "/v1/chat/completions", json=chat_body([{"role": "", "content": ""}])
        )
        assert nobody.status_code == 422
        assert nobody.json()["error"]["message"].startswith("body.messages.0.role: ")
        assert "retry-after" not in nobody.headers


async def test_engine_and_proxy_accept_the_same_prompts(tmp_path: Path) -> None:
    assert ProxySettings().max_body_mb << 20 < MAX_BODY
    async with embedded(tmp_path, strict=False) as (client, _):
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * (17 << 20)}]}
        answer = await client.post("/v1/chat/completions", json={**body, "n": 1}, timeout=50)
        assert answer.status_code == 200


JSON = {"content-type": "application/json"}


def chat_request(*texts: str, **more: Any) -> ChatRequest:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    body = {"max_tokens": 5, "messages": messages, **more}
    return read_messages(json.dumps(body).encode(), JSON)


def counted(*texts: str, **more: Any) -> ChatRequest:
    request = chat_request(*texts, **more)
    body = {"messages": request.messages, **more}
    return read_count(json.dumps(body).encode(), JSON)


def test_a_recently_answered_prompt_is_counted_exactly() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}}
    gauge = TokenEstimator()
    request = chat_request("Say hello.", tools=[tool], model="a", temperature=0.5)
    assert not gauge.is_exact(counted("Say hello.", tools=[tool]))
    gauge.learn(request, 17)
    assert gauge.is_exact(counted("Say hello.", tools=[tool]))
    assert gauge.estimate(counted("Say hello.", tools=[tool], model="b")) == 17
    assert not gauge.is_exact(counted("Say hello."))
    assert not gauge.is_exact(counted("Say hello!", tools=[tool]))
    gauge.learn(request, 18)  # the server has another model now
    assert gauge.estimate(request) == 18


def test_a_continued_prompt_estimates_only_its_new_part(gauge: TokenEstimator) -> None:
    gauge.learn(chat_request("x" * 4000), 5000)
    longer = chat_request("x" * 4000, "answer", "next")
    added = gauge.estimate(longer) - 5000
    assert 0 < added < 200
    assert not gauge.is_exact(longer)


def test_the_initial_ratio_applies_before_the_first_answer() -> None:
    estimate = TokenEstimator().estimate(chat_request("x" * 35_000))
    assert abs(estimate - 35_000 / BYTES_PER_TOKEN) < 100


def test_the_ratio_is_learned_and_implausible_samples_are_ignored(gauge: TokenEstimator) -> None:
    for n in range(20):
        gauge.learn(chat_request(f"{n}" + "x" * 10_000), 5_000)
    gauge.learn(chat_request("cut to fit" * 5_000), 100)  # not plausible
    gauge.learn(chat_request("y" * 9_000), 800)  # plausible, but alone
    gauge.learn(chat_request("z" * 9_000), 0)  # without a count
    estimate = gauge.estimate(chat_request("a" * 8_000))
    assert 3_900 < estimate < 4_200


def test_the_ratio_comes_from_prompts_of_similar_length(gauge: TokenEstimator) -> None:
    """A template's fixed part weighs more in them."""
    for n in range(10):
        gauge.learn(chat_request(f"{n:04}"), 40)
        gauge.learn(chat_request(f"{n}" + "x" * 20_000), 5_000)
    assert 35 <= gauge.estimate(chat_request("ping")) <= 45
    assert 4_900 <= gauge.estimate(chat_request("y" * 20_000)) <= 5_100


def test_images_count_apart() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 100_000}}
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": [image]}]}
    request = read_messages(json.dumps(body).encode(), JSON)
    gauge = TokenEstimator()
    assert IMAGE_TOKENS <= gauge.estimate(request) < IMAGE_TOKENS + 100
    gauge.learn(request, 300)
    assert gauge.estimate(request) == 300
    assert abs(gauge.estimate(chat_request("x" * 3500)) - 1000) < 50  # nothing learned from it


def test_what_is_remembered_is_bounded(gauge: TokenEstimator) -> None:
    for n in range(MAX_EXACT + 5):
        gauge.learn(chat_request(str(n)), 10)
    assert not gauge.is_exact(chat_request("0"))
    assert gauge.is_exact(chat_request(str(MAX_EXACT + 4)))
    assert len(gauge._exact) == MAX_EXACT
    assert len(gauge._samples) == MAX_SAMPLES


@given(st.lists(st.tuples(st.text(max_size=50), st.integers(-5, 1000)), max_size=20), st.text())
def test_an_estimate_is_always_at_least_one(pairs: list[tuple[str, int]], text: str) -> None:
    gauge = TokenEstimator()
    for value, tokens in pairs:
        gauge.learn(chat_request(value), tokens)
    assert gauge.estimate(chat_request(text)) >= 1
