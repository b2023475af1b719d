"""Which requests are authorized, and the answers to the others."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

from proxy.http import middleware
from proxy.http.middleware import DRAIN, UNREAD, origins_of
from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings
from tests.support.stored import stored_bytes
from tests.support.wire import wire

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
async def test_v1_and_sessions_require_the_key(tmp_path: Path, values: dict[str, str]) -> None:
    async with fronted(tmp_path, configured=KEYED) as f:
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
async def test_the_key_is_accepted_in_either_header(tmp_path: Path, values: dict[str, str]) -> None:
    async with fronted(tmp_path, configured=KEYED) as f, wire(f.url) as one:
        for path, body in BODIES.items():
            await one.ask("POST", path, body, **values)
            assert (await one.answer()).status == 200
        await one.ask("POST", f"/sessions/one{CHAT}", BODIES[CHAT], **values)
        assert (await one.answer()).status == 200
        await f.world.closed()


async def test_some_routes_need_no_key(tmp_path: Path) -> None:
    async with fronted(tmp_path, configured=KEYED) as f:
        for path in ("/health", "/ping", "/load", "/version", "/metrics", "/openapi.json"):
            assert (await f.client.get(path)).status_code == 200


async def test_no_response_contains_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with fronted(tmp_path, configured=KEYED) as f:
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


async def test_a_small_body_without_the_key_leaves_the_connection_open(tmp_path: Path) -> None:
    async with fronted(tmp_path, configured=KEYED) as f, wire(f.url) as one:
        await one.ask("POST", CHAT, b" " * UNREAD)
        assert (await one.answer()).status == 401
        await one.ask("GET", "/v1/models", authorization=f"Bearer {KEY}")
        assert (await one.answer()).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [(CHAT, 401), ("/tokenize", 401), ("/detokenize", 401), ("/nothing", 404), ("/health", 405)],
)
@pytest.mark.parametrize("result", [f"content-length: {31 << 20}", "transfer-encoding: chunked"])
async def test_refusals_are_sent_before_the_body_is_read(
    tmp_path: Path, path: str, status: int, result: str
) -> None:
    async with fronted(tmp_path, configured=KEYED) as f, wire(f.url) as one:
        await one.send(f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{result}\r\n\r\n")
        answer = await one.answer(DRAIN / 2)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await one.closed(DRAIN / 2) == b""


@pytest.mark.slow
@pytest.mark.parametrize("path", [CHAT, "/ping", "/control/commands/engine.stop"])
async def test_little_of_a_body_is_read_after_its_request_is_answered(
    tmp_path: Path, path: str
) -> None:
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


async def test_the_bodies_of_all_connections_share_one_limit(tmp_path: Path) -> None:
    small = settings(proxy={"max_body_mb": 1, "max_bodies_mb": 1})
    half = 1 << 19
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    async with fronted(tmp_path, configured=small) as f:
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


async def test_a_body_is_counted_until_its_request_is_answered(tmp_path: Path) -> None:
    configured = settings(proxy={"max_body_mb": 1, "max_bodies_mb": 1})
    text = {**BODIES[CHAT], "user": "x" * (1 << 19)}
    async with fronted(tmp_path, configured=configured) as f:
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


async def test_unknown_paths_and_methods_are_404_and_405(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one:
        for path in ("/", "/v1", "/v1/nothing", "/nothing", "/sessions", "/sessions/one",
                     "/sessions//v1/models", "/sessions/one/health", "/v1/responses/a/b",
                     "/control", "/docs"):  # fmt: skip
            await one.ask("GET", path)
            answer = await one.answer()
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
            await one.ask(method, path)
            answer = await one.answer()
            assert (answer.status, answer.body) == (405, b'{"detail":"Method Not Allowed"}')
            assert answer.headers["allow"] == allow
        await one.ask("HEAD", "/health")
        status, headers = await one.head()
        assert (status, headers["allow"]) == (405, "GET")


async def test_unusual_spellings_of_paths(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as one:
        for path in ("/v1/models/", "/v1/%6Dodels", "/v1/models?a=b", "/health/"):
            await one.ask("GET", path)
            assert (await one.answer()).status == 200


# --- sessions in the path -----------------------------------------------------------------------


@pytest.mark.slow
async def test_a_session_is_read_from_the_path(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        for path, body in BODIES.items():
            answer = await f.client.post(f"/sessions/my-one%2F2{path}?beta=true", json=body)
            assert answer.status_code == 200
        assert (await f.client.get("/sessions/one/v1/models")).json()["object"] == "list"
        await f.world.closed()
        assert [group.session for group in f.world.state.groups.values()] == ["my-one/2"] * 4


async def test_the_session_of_the_path_takes_precedence_over_the_headers(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        result = {"x-session-id": "other", "session-id": "third"}
        await f.client.post(f"/sessions/mine{CHAT}", json=BODIES[CHAT], headers=result)
        await f.world.closed()
        (group,) = f.world.state.groups.values()
        assert group.session == "mine"


async def test_a_session_name_is_sanitized(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
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


async def test_web_pages_of_other_origins_are_refused(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        answer = await f.client.options(CHAT, headers=PREFLIGHT)
        assert (answer.status_code, answer.text) == (400, "Disallowed CORS origin")
        answer = await f.client.get("/v1/models", headers={"origin": "https://chat.example"})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.slow
async def test_web_pages_of_allowed_origins_are_accepted(tmp_path: Path) -> None:
    named = settings(proxy={"cors_origins": "https://chat.example, http://localhost:3000/"})
    async with fronted(tmp_path, configured=named) as f:
        answer = await f.client.options(CHAT, headers=PREFLIGHT)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        for body in (BODIES[CHAT], {**BODIES[CHAT], "stream": True}, {}):
            result = {"origin": "https://chat.example"}
            answer = await f.client.post(CHAT, json=body, headers=result)
            assert answer.headers["access-control-allow-origin"] == "https://chat.example"
            assert "Origin" in answer.headers["vary"]
        other = await f.client.options(
            CHAT, headers={**PREFLIGHT, "origin": "https://evil.example"}
        )
        assert other.status_code == 400
        plain = await f.client.post(CHAT, json=BODIES[CHAT])
        assert "access-control-allow-origin" not in plain.headers
        await f.world.closed()


async def test_a_web_page_of_an_allowed_origin_can_read_the_401(tmp_path: Path) -> None:
    both = settings(proxy={"cors_origins": "*", "api_key": KEY})
    async with fronted(tmp_path, configured=both) as f:
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
