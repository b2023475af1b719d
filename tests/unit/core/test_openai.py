"""The caller of OpenAI-compatible APIs: how a call fails, what it hides, what it leaves out."""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import msgspec
import pytest

from core.openai.api import CallFailed, OpenAIApi, RequestShape
from core.openai.errors import error_text, retry_after

KEY = "own-secret-of-the-test"


def api(answer: Callable[[httpx.Request], httpx.Response], **more: Any) -> OpenAIApi:
    return OpenAIApi("http://h:1/v1/", key=KEY, transport=httpx.MockTransport(answer), **more)


async def test_a_call_sends_the_key_and_the_error_message_does_not_contain_it() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert str(request.url) == "http://h:1/v1/models"
        assert "content-type" not in request.headers
        return httpx.Response(401, json={"error": {"message": f"no key {KEY}"}})

    result = await api(answer).call("GET", "/models", None, seconds=1)
    assert (result.status, result.message) == (401, "no key [redacted]")
    assert result.fault == "401: no key [redacted]"
    assert not result.is_success


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (httpx.ConnectError(f"refused {KEY}"), "away", "refused [redacted]"),
        (httpx.RemoteProtocolError("cut"), "away", "cut"),
        (httpx.ConnectTimeout(""), "away", "ConnectTimeout"),
        (httpx.ReadTimeout(""), "late", "no answer within 1 s"),
        (httpx.UnsupportedProtocol("ftp"), "unsendable", "ftp"),
        (httpx.DecodingError("bad gzip"), "broken", "bad gzip"),
    ],
)
async def test_a_failure_has_its_kind(error: Exception, kind: str, text: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(CallFailed) as caught:
        await api(answer).call("POST", "/x", b"{}", seconds=1)
    assert (caught.value.kind, caught.value.text) == (kind, text)


async def test_a_call_ends_in_time_and_within_its_size() -> None:
    async def endless(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    slow = OpenAIApi("http://h:1", transport=httpx.MockTransport(endless))
    with pytest.raises(CallFailed) as caught:
        await slow.call("GET", "/x", None, seconds=0.01)
    assert caught.value.kind == "late"
    large = api(lambda request: httpx.Response(200, content=b"x" * 5000), body_limit=4999)
    with pytest.raises(CallFailed) as caught:
        await large.call("GET", "/x", None, seconds=1)
    assert caught.value.kind == "too_large"


async def test_what_an_endpoint_refuses_by_name_is_left_out_from_then_on() -> None:
    bodies: list[dict[str, Any]] = []
    refusals = {
        "max_tokens": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "temperature": "temperature must be 1",
        "seed": "unknown field seed",
    }

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(msgspec.json.decode(request.content))
        for name, refusal in refusals.items():
            if name in bodies[-1]:
                return httpx.Response(400, json={"detail": refusal})
        return httpx.Response(200, json={})

    def make(shape: RequestShape) -> dict[str, Any]:
        fields = {shape.limit: 9, "temperature": 0.1 if shape.temperature else None}
        fields["seed"] = 4 if shape.seed else None
        return {name: value for name, value in fields.items() if value is not None}

    own = api(answer, shape=RequestShape(seed=True))
    assert (await own.adapt(make, "/chat/completions", seconds=1)).is_success
    assert (await own.adapt(make, "/chat/completions", seconds=1)).is_success
    assert len(bodies) == 5
    assert bodies[-1] == {"max_completion_tokens": 9}


async def test_a_refusal_without_a_field_is_returned() -> None:
    own = api(lambda request: httpx.Response(400, text="no"), shape=RequestShape(form="schema"))
    adapt = await own.adapt(lambda shape: {}, "/x", seconds=1)
    assert (adapt.status, adapt.fault) == (400, "400: no")
    assert own.shape == RequestShape(form="schema")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "m"}}', "m"),
        (b'{"error": "e"}', "e"),
        (b'{"message": "own"}', "own"),
        (b'{"detail": "d"}', "d"),
        (b'{"detail": [{"loc": ["body", "n"], "msg": "too few"}]}', "body.n: too few"),
        (b"plain words", "plain words"),
        (b"<html>Bad</html>", "502 Bad Gateway"),
        (b"", "502 Bad Gateway"),
        (b"[" * 100_000, "[" * 16_000),
    ],
)
def test_error_messages_are_extracted(body: bytes, text: str) -> None:
    assert error_text(502, body) == text


@pytest.mark.parametrize(
    ("header", "wait"),
    [("3", 3.0), ("0.5", 0.5), ("", None), ("soon", None), ("nan", None), ("-1", None)],
)
def test_retry_after_is_read_as_seconds(header: str, wait: float | None) -> None:
    assert retry_after({"retry-after": header}) == wait


def test_retry_after_may_be_a_date() -> None:
    for later, wait in ((30, 30), (-30, 0)):
        headers = {"retry-after": formatdate(1_000_000 + later, usegmt=True)}
        assert retry_after(headers, lambda: 1_000_000.0) == wait
