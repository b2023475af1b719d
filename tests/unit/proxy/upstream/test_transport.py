"""Addresses, keys and errors of an upstream."""

from pathlib import Path

import pytest

from ajet_swarm.protocol.errors import ChatErrorKind
from core.settings import UpstreamSettings
from proxy.upstream.errors import redirect_fault, refusal_of, upstream_fault
from proxy.upstream.transport import UpstreamError, addresses, key_of


@pytest.mark.parametrize(
    ("url", "base", "root"),
    [
        ("http://h:8000", "http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/", "http://h:8000/v1", "http://h:8000"),
        ("https://h/v1/", "https://h/v1", "https://h"),
        ("https://h/openai/v1", "https://h/openai/v1", "https://h/openai"),
        ("https://h/api", "https://h/api", "https://h/api"),
    ],
)
def test_addresses(url: str, base: str, root: str) -> None:
    assert addresses(url) == (base, root)


@pytest.mark.parametrize("url", ["", "h:8000", "ftp://h", "http://me:pass@h", "http://h/v1?key=x"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        addresses(url)
    assert "pass" not in str(caught.value).replace("password", "")


def test_a_key_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" sk-1234 \n")
    assert key_of(UpstreamSettings(key_file=str(file), key="other")) == "sk-1234"
    file.write_text("two words")
    with pytest.raises(UpstreamError):
        key_of(UpstreamSettings(key_file=str(file)))
    with pytest.raises(UpstreamError):
        key_of(UpstreamSettings(key_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (400, b'{"error": {"message": "bad", "param": "n"}}', ChatErrorKind.REFUSED, "bad"),
        (400, b'{"error": {"code": "context_length_exceeded"}}', ChatErrorKind.OVERFLOW, "400 Bad"),
        (400, b'{"object": "error", "message": "old"}', ChatErrorKind.REFUSED, "old"),
        (401, b'{"error": "Unauthorized"}', ChatErrorKind.UNAUTHORIZED, "Unauthorized"),
        (404, b'{"detail": "Not Found"}', ChatErrorKind.REFUSED, "Not Found"),
        (429, b"<html>", ChatErrorKind.LIMITED, "429 Too Many Requests"),
        (529, b"", ChatErrorKind.LIMITED, "HTTP 529"),
        (408, b"[]", ChatErrorKind.UPSTREAM, "408 Request Timeout"),
        (502, b"{}", ChatErrorKind.UPSTREAM, "502 Bad Gateway"),
    ],
)
def test_errors_are_classified(status: int, body: bytes, kind: ChatErrorKind, text: str) -> None:
    result = upstream_fault(status, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, body)
    assert result.kind is kind
    assert result.text.startswith(text)
    assert result.retry_after is None


@pytest.mark.parametrize(
    ("location", "actual"),
    [
        ("https://h/v2", "to https://h "),
        ("//other:81/x", "to http://other:81 "),
        ("/v2", "to another path of its own "),
        ("http://[::1]:9/x", "to http://[::1]:9 "),
        ("http://[bad", "elsewhere "),
        ("http://h:port/", "elsewhere "),
        ("mailto:me", "elsewhere "),
        ("", "to another path of its own "),
    ],
)
def test_a_redirect_names_its_target(location: str, actual: str) -> None:
    result = redirect_fault(301, {"Location": location}, "http://h/v1/chat/completions")
    assert f"it redirects {actual}(HTTP 301)" in result.text
    refusal = refusal_of([result])
    assert refusal is not None
    assert refusal.status == 502


def test_an_error_caused_by_the_request_takes_precedence() -> None:
    limited = upstream_fault(429, {"Retry-After": "3"}, b"")
    wrong = upstream_fault(400, {}, b'{"error": {"message": "bad"}}')
    assert refusal_of([None, limited, wrong]).status == 400  # type: ignore[union-attr]
    assert refusal_of([limited, None]).retry_after == 3  # type: ignore[union-attr]
    assert refusal_of([None]) is None
