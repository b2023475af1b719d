"""Limits on requests: key, body, host, paths, large and deep JSON."""

import asyncio
import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proxy.dialects.request
import proxy.http.exchange
from core.dialects.errors import ApiError
from core.dialects.validation import MOST_STOPS
from proxy.admission.sessions import Conversations
from proxy.dialects.chat.completions import COMPLETIONS, MOST_PROMPTS
from proxy.dialects.chat.request import chat_dialect
from proxy.dialects.client_marks import MOST_ASIDES, own_words
from proxy.dialects.messages import MESSAGES
from proxy.dialects.request import MOST_FIELDS, MOST_VALUES, Dialect, check_values, has_more_values
from proxy.dialects.responses import RESPONSES
from proxy.http import middleware
from proxy.http.exchange import LONG, parse
from proxy.http.middleware import DRAIN, UNREAD, origins_of
from tests.support.proxy.front import ASKED, BODIES, Front, fronted
from tests.support.proxy.world import settings
from tests.support.stored import stored_bytes
from tests.support.wire import Wire, wire

KEYED = settings(proxy={"api_key": "sk-one-two-three-four"})


KEY = "sk-one-two-three-four"


CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "LINGER", 0.1)


BAD_KEYS: list[dict[str, str]] = [
    {},
    {"authorization": "Bearer sk-two"},
    {"authorization": f"Basic {KEY}"},
    {"authorization": KEY},
    {"authorization": "Bearer"},
    {"x_api_key": "sk-on\u00e9"},
    {"x_api_key": ""},
    {"api_key": KEY},
]


@pytest.mark.parametrize("values", BAD_KEYS)
@pytest.mark.world(KEYED)
async def test_v1_and_sessions_require_the_key(f: Front, values: dict[str, str]) -> None:
    requests = (
        ("POST", CHAT, BODIES[CHAT]),
        ("POST", "/v1/messages", BODIES["/v1/messages"]),
        ("GET", "/v1/models", None),
        ("GET", "/v1/nothing", None),
        ("POST", "/v2/embed", BODIES[CHAT]),
        ("POST", "/inference/v1/generate", BODIES[CHAT]),
        ("POST", "/cohere/v2/chat", BODIES[CHAT]),
        ("DELETE", CHAT, None),
        ("POST", f"/sessions/one{CHAT}", BODIES[CHAT]),
        ("GET", "/sessions/one/v1/models", None),
    )
    async with wire(f.url) as one:
        for method, path, body in requests:
            await one.ask(method, path, body, **values)
            answer = await one.answer()
            assert (answer.status, answer.body) == (401, b'{"error":"Unauthorized"}')
            assert answer.headers["content-type"] == "application/json"
            assert "www-authenticate" not in answer.headers
    assert not f.world.state.groups


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bEARER {KEY}"},
        {"x_api_key": KEY},
        {"x_api_key": KEY, "authorization": "Bearer sk-other"},
    ],
)
@pytest.mark.world(KEYED)
async def test_the_key_is_accepted_in_either_header(
    f: Front, wired: Wire, values: dict[str, str]
) -> None:
    for path, body in BODIES.items():
        await wired.ask("POST", path, body, **values)
        assert (await wired.answer()).status == 200
    await wired.ask("POST", f"/sessions/one{CHAT}", BODIES[CHAT], **values)
    assert (await wired.answer()).status == 200
    await f.world.closed()


@pytest.mark.world(KEYED)
async def test_some_routes_need_no_key(f: Front) -> None:
    for path in ("/health", "/ping", "/load", "/version", "/metrics", "/openapi.json"):
        assert (await f.client.get(path)).status_code == 200


@pytest.mark.world(KEYED)
async def test_no_response_contains_a_key(
    f: Front, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    right = {"authorization": f"Bearer {KEY}"}
    wrong = {"authorization": "Bearer sk-a-wrong-secret-1234"}
    bodies: tuple[dict[str, Any], ...] = (BODIES[CHAT], {}, {"messages": []})
    for body in bodies:
        await f.client.post(CHAT, json=body, headers=right)
        await f.client.post(CHAT, json=body, headers=wrong)
    await f.world.closed()
    assert KEY not in caplog.text
    assert "a-wrong-secret" not in caplog.text
    journal = stored_bytes(tmp_path)
    assert KEY.encode() not in journal
    assert b"a-wrong-secret" not in journal
    assert "127.0.0.1 requested /v1/chat/completions without the API key" in caplog.text


@pytest.mark.world(KEYED)
async def test_a_small_body_without_the_key_keeps_the_connection(f: Front, wired: Wire) -> None:
    await wired.ask("POST", CHAT, b" " * UNREAD)
    assert (await wired.answer()).status == 401
    await wired.ask("GET", "/v1/models", authorization=f"Bearer {KEY}")
    assert (await wired.answer()).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [(CHAT, 401), ("/tokenize", 401), ("/detokenize", 401), ("/nothing", 404), ("/health", 405)],
)
@pytest.mark.parametrize("result", [f"content-length: {31 << 20}", "transfer-encoding: chunked"])
@pytest.mark.world(KEYED)
async def test_refusals_are_sent_before_the_body_is_read(
    f: Front, wired: Wire, path: str, status: int, result: str
) -> None:
    await wired.send(f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{result}\r\n\r\n")
    answer = await wired.answer(DRAIN / 2)
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert await wired.closed(DRAIN / 2) == b""


@pytest.mark.slow
@pytest.mark.parametrize("path", [CHAT, "/ping", "/control/commands/engine.stop"])
async def test_little_of_a_body_is_read_after_the_answer(tmp_path: Path, path: str) -> None:
    sent, size = 0, 256 << 20
    async with fronted(tmp_path, configured=KEYED) as f, wire(f.url) as one:
        await one.send(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n")
        await one.answer()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                while sent < size:
                    await one.send(b" " * UNREAD)
                    sent += UNREAD
    assert sent < size // 2  # what the system's own buffers take


@pytest.mark.world(settings(proxy={"max_body_mb": 1, "max_bodies_mb": 1}))
async def test_the_bodies_of_all_connections_share_one_limit(f: Front) -> None:
    half = 1 << 19
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    async with wire(f.url) as first, wire(f.url) as second:
        await first.send(f"{head}content-length: {half + 2}\r\n\r\n" + " " * half)
        while await _status(f.url, half + 2) == 400:  # until the first half is there
            pass
        await second.ask("POST", CHAT, b" " * half + b"{}", content_type="application/json")
        answer = await second.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert answer.headers["connection"] == "close"
        assert answer.json()["error"]["type"] == "Service Unavailable"
        assert await _status(f.url, 2) == 400  # a small one has room
        await first.send("{}")
        assert (await first.answer()).status == 400
    assert await _status(f.url, half + 2) == 400  # there is room again


async def _status(url: str, size: int) -> int:
    async with wire(url) as one:
        await one.ask("POST", CHAT, b" " * (size - 2) + b"{}", content_type="application/json")
        return (await one.answer()).status


@pytest.mark.world(settings(proxy={"max_body_mb": 1, "max_bodies_mb": 1}))
async def test_a_body_is_counted_until_its_request_is_answered(f: Front) -> None:
    text = {**BODIES[CHAT], "user": "x" * (1 << 19)}
    answers: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def late(name: str, body: dict[str, Any], index: int) -> Any:
        await answers
        return "hello"

    f.world.swarm.answer = late
    async with wire(f.url) as one:
        await one.ask("POST", CHAT, text)
        await f.world.open("GENERATING")
        assert await _status(f.url, 1 << 19) == 503
        answers.set_result(None)
        assert (await one.answer()).status == 200
        assert await _status(f.url, 1 << 19) == 400
    await f.world.closed()


@pytest.mark.parametrize(
    ("host", "configured", "status"),
    [
        *((host, {}, 200) for host in (
            "localhost", "LocalHost:8000", "127.0.0.1:1", "127.1.2.3", "[::1]:8000", "a.localhost",
            "host.docker.internal:8000", "gateway.docker.internal", "host.containers.internal",
        )),
        ("evil.example", {}, 421),
        ("127.0.0.1.evil.example:8000", {}, 421),
        ("192.168.0.7", {}, 421),
        ("box.lan:8000", {"http": {"allowed_hosts": "Box.lan, other"}}, 200),
        ("evil.example", {"http": {"allowed_hosts": ("box.lan",)}}, 421),
        ("evil.example", {"http": {"allowed_hosts": "*"}}, 200),
        ("evil.example", {"proxy": {"api_key": KEY}}, 200),
    ],
)  # fmt: skip
async def test_a_foreign_host_is_refused_on_loopback_without_a_key(
    tmp_path: Path, host: str, configured: dict[str, Any], status: int
) -> None:
    async with fronted(tmp_path, configured=settings(**configured)) as f:
        headers = {"host": host, "authorization": f"Bearer {KEY}"}
        for path in ("/v1/models", "/metrics"):
            answer = await f.client.get(path, headers=headers)
            assert answer.status_code == status
            if status == 421:
                assert "http.allowed_hosts" in answer.json()["error"]["message"]


async def test_unknown_paths_and_methods_are_404_and_405(f: Front, wired: Wire) -> None:
    for path in ("/", "/v1", "/v1/nothing", "/nothing", "/sessions", "/sessions/one",
                 "/sessions//v1/models", "/sessions/one/health", "/v1/responses/a/b",
                 "/control", "/docs"):  # fmt: skip
        await wired.ask("GET", path)
        answer = await wired.answer()
        assert (answer.status, answer.body) == (404, b'{"detail":"Not Found"}'), path
    for method, path, allow in (
        ("GET", CHAT, "POST"),
        ("PUT", "/v1/messages", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/ping", "GET, POST"),
        ("DELETE", "/v1/responses/resp_1", "GET"),
        ("GET", "/v1/responses/resp_1/cancel", "POST"),
        ("OPTIONS", "/health", "GET"),
    ):
        await wired.ask(method, path)
        answer = await wired.answer()
        assert (answer.status, answer.body) == (405, b'{"detail":"Method Not Allowed"}')
        assert answer.headers["allow"] == allow
    await wired.ask("HEAD", "/health")
    status, headers = await wired.head()
    assert (status, headers["allow"]) == (405, "GET")


async def test_unusual_spellings_of_paths(f: Front, wired: Wire) -> None:
    for path in ("/v1/models/", "/v1/%6Dodels", "/v1/models?a=b", "/health/"):
        await wired.ask("GET", path)
        assert (await wired.answer()).status == 200


# --- sessions in the path -----------------------------------------------------------------------


@pytest.mark.slow
async def test_a_session_is_read_from_the_path(f: Front) -> None:
    for path, body in BODIES.items():
        answer = await f.client.post(f"/sessions/my-one%2F2{path}?beta=true", json=body)
        assert answer.status_code == 200
    assert (await f.client.get("/sessions/one/v1/models")).json()["object"] == "list"
    await f.world.closed()
    assert [group.session for group in f.world.state.groups.values()] == ["my-one/2"] * 4


async def test_the_session_of_the_path_takes_precedence_over_the_headers(f: Front) -> None:
    result = {"x-session-id": "other", "session-id": "third"}
    await f.client.post(f"/sessions/mine{CHAT}", json=BODIES[CHAT], headers=result)
    await f.world.closed()
    (group,) = f.world.state.groups.values()
    assert group.session == "mine"


async def test_a_session_name_is_sanitized(f: Front) -> None:
    name = "a%1b[2J%0a" + "b" * 500
    assert (await f.client.post(f"/sessions/{name}{CHAT}", json=BODIES[CHAT])).is_success
    await f.world.closed()
    (group,) = f.world.state.groups.values()
    assert 100 < len(group.session) <= 200
    assert "\x1b" not in group.session


# --- pages from elsewhere -----------------------------------------------------------------------

PREFLIGHT = {
    "origin": "https://chat.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}


async def test_web_pages_of_other_origins_are_refused(f: Front) -> None:
    answer = await f.client.options(CHAT, headers=PREFLIGHT)
    assert (answer.status_code, answer.text) == (400, "Disallowed CORS origin")
    answer = await f.client.get("/v1/models", headers={"origin": "https://chat.example"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.slow
@pytest.mark.world(settings(proxy={"cors_origins": "https://chat.example, http://localhost:3000/"}))
async def test_web_pages_of_allowed_origins_are_accepted(f: Front) -> None:
    answer = await f.client.options(CHAT, headers=PREFLIGHT)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert "authorization" in answer.headers["access-control-allow-headers"]
    for body in (BODIES[CHAT], {**BODIES[CHAT], "stream": True}, {}):
        result = {"origin": "https://chat.example"}
        answer = await f.client.post(CHAT, json=body, headers=result)
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        assert "Origin" in answer.headers["vary"]
    other = await f.client.options(CHAT, headers={**PREFLIGHT, "origin": "https://evil.example"})
    assert other.status_code == 400
    plain = await f.client.post(CHAT, json=BODIES[CHAT])
    assert "access-control-allow-origin" not in plain.headers
    await f.world.closed()


@pytest.mark.world(settings(proxy={"cors_origins": "*", "api_key": KEY}))
async def test_a_web_page_of_an_allowed_origin_can_read_the_401(f: Front) -> None:
    assert (await f.client.options(CHAT, headers=PREFLIGHT)).status_code == 200
    result = {"origin": "https://chat.example"}
    answer = await f.client.post(CHAT, json=BODIES[CHAT], headers=result)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "*"


def test_origins_are_a_list_or_a_text() -> None:
    assert origins_of("https://a.example, ,https://b.example/") == [
        "https://a.example",
        "https://b.example",
    ]
    assert origins_of(("http://c",)) == ["http://c"]
    assert origins_of(()) == origins_of("") == []


async def test_a_large_body_does_not_block_the_event_loop() -> None:
    loop_ran = threading.Event()

    def read(data: bytes) -> bool:
        return loop_ran.wait(20)

    asyncio.get_running_loop().call_later(0.01, loop_ran.set)
    assert await parse(b"x" * (LONG + 1), read)
    assert await parse(b"x", lambda _: threading.current_thread()) is threading.current_thread()


@pytest.mark.parametrize(
    ("path", "body"),
    [*BODIES.items(), ("/v1/messages/count_tokens", {"model": "tiny", "messages": ASKED})],
)
async def test_every_route_reads_large_bodies_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    readers: list[threading.Thread] = []
    check = check_values

    def checked(data: bytes) -> None:
        readers.append(threading.current_thread())
        check(data)

    monkeypatch.setattr(proxy.dialects.request, "check_values", checked)
    monkeypatch.setattr(proxy.http.exchange, "LONG", 1000)
    async with fronted(tmp_path) as front:
        for length in (10, 2000):
            answer = await front.client.post(path, json=body | {"user": "x" * length})
            assert answer.status_code == 200, answer.text
    assert [reader is threading.main_thread() for reader in readers] == [True, False]


CHAT_PATH = chat_dialect("reasoning")


JSON = {"content-type": "application/json"}


MakeBody = Callable[[], bytes]
"""Large bodies are made by the test that sends them: each worker collects all tests."""


SAID: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def handled(dialect: Dialect, data: bytes) -> str:
    """Read a body, find its conversation; what it is answered with, if it is refused."""
    try:
        request = dialect.read(data, JSON, "here")
    except ApiError as refusal:
        return dialect.refusal(refusal).decode()
    Conversations().match(request.messages)
    return ""


def chat(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": SAID} | more).encode()


def responses(**more: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi"} | more).encode()


def messages(**more: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 5, "messages": SAID} | more).encode()


def completions(**more: Any) -> bytes:
    return json.dumps({"model": "m"} | more).encode()


def biases(count: int) -> dict[str, int]:
    """So many token biases."""
    return {str(one): 1 for one in range(count)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": 1, "b": [1, 2]}', 5),
        ('["a,[{", "\\",[", "\\\\", {"\\\\\\"": ","}]', 6),
        ('{"a": {}, "b": []}', 5),
    ],
)
def test_separators_within_strings_do_not_count(text: str, values: int) -> None:
    # A value more than a text shows is room for its outermost one.
    marks = values - 1
    assert not has_more_values(text.encode(), marks + 1)
    assert has_more_values(text.encode(), marks - 1)


@pytest.mark.slow
def test_ordinary_bodies_pass_whatever_their_texts_contain() -> None:
    code = 'rows = [{"a": 1}, {"b": "\\\\"}]\n'
    check_values(chat(messages=[{"role": "user", "content": code * 30_000}]))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, 2]}'}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": code}]},
        {"role": "assistant", "content": code * 10, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": code * 20},
    ]
    assert handled(CHAT_PATH, chat(messages=turns * 1_000)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "body", "actual"),
    [
        (CHAT_PATH, lambda: chat(logit_bias=biases(MOST_VALUES)), "JSON values"),
        (CHAT_PATH, lambda: chat(x=[[]] * MOST_VALUES), "JSON values"),
        (CHAT_PATH, lambda: chat(x=["\ud800"] * MOST_VALUES), "JSON values"),
        (CHAT_PATH, lambda: chat(**{f"k{one}": 1 for one in range(MOST_FIELDS)}), "fields"),
        (CHAT_PATH, lambda: chat(stop=["a"] * (MOST_STOPS + 1)), "stop must hold at most"),
        (CHAT_PATH, lambda: chat(stop=["a"] * 500_000), "JSON values"),
        (RESPONSES, lambda: responses(input=SAID * MOST_VALUES), "JSON values"),
        (MESSAGES, lambda: messages(messages=SAID * MOST_VALUES), "JSON values"),
        (
            MESSAGES,
            lambda: messages(stop_sequences=["a"] * (MOST_STOPS + 1)),
            "stop must hold at most",
        ),
        (
            COMPLETIONS,
            lambda: completions(prompt=["a"] * (MOST_PROMPTS + 1)),
            "prompt must hold at most",
        ),
        (COMPLETIONS, lambda: completions(prompt=["a"] * MOST_VALUES * 2), "JSON values"),
    ],
    ids=str.split("bias lists halves fields stops many-stops items messages sequences prompts all"),
)
def test_too_many_values_are_refused(dialect: Dialect, body: MakeBody, actual: str) -> None:
    result = json.loads(handled(dialect, body()))
    assert actual in result["error"]["message"]
    if dialect is MESSAGES:
        assert result["type"] == "error"
    else:
        assert result["error"]["code"] == 400


@pytest.mark.slow
def test_notes_beyond_the_limit_stay() -> None:
    aside = "<system-reminder>a</system-reminder>"
    assert own_words(aside * MOST_ASIDES + "hi") == "hi"
    assert own_words(aside * (MOST_ASIDES + 2)) == aside * 2


def computed(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def filled(size: int) -> bytes:
    """An honest conversation of about so many bytes."""
    turn = {"role": "user", "content": 'word, and "so" on\n' * 5}
    reply = {"role": "assistant", "content": "well, {that} is [it]. " * 5}
    return chat(messages=[turn, reply] * (size // 320))


def call() -> dict[str, Any]:
    """A call whose arguments have half a million lists."""
    return {"function": {"name": "f", "arguments": '{"a":[' + "[]," * 500_000 + "[]]}"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (CHAT_PATH, lambda: chat(messages=[{"role": "user", "content": "\ud800" * 250_000}])),
        (CHAT_PATH, lambda: chat(messages=[*SAID, {"role": "assistant", "tool_calls": [call()]}])),
        (CHAT_PATH, lambda: chat(logit_bias=biases(120_000))),
        (RESPONSES, lambda: responses(input=SAID * 40_000)),
        (COMPLETIONS, lambda: completions(prompt=["a"] * 300_000)),
    ],
    ids=["halves", "arguments", "bias", "items", "prompts"],
)
def test_no_body_blocks_the_event_loop_much_longer_than_an_ordinary_one(
    dialect: Dialect, body: MakeBody
) -> None:
    data = body()
    honest = filled(len(data))
    usual = least = math.inf
    for _ in range(12):  # in turns: a busy machine slows down one as much as the other
        usual = min(usual, computed(lambda: handled(CHAT_PATH, honest)))
        least = min(least, computed(lambda: handled(dialect, data)))
        if least < 2 * usual:
            return
    raise AssertionError(f"{least:.3f} s against {usual:.3f} s of {len(data) >> 10} KiB")
