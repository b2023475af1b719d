"""An upstream: its transport, and prompts without a template."""

from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.protocol.errors import ChatErrorKind
from core.settings import UpstreamSettings
from proxy.upstream.errors import redirect_fault, refusal_of, upstream_fault
from proxy.upstream.transport import UpstreamError, addresses, key_of
from tests.support.proxy.observed import Observed
from tests.support.scripted.openai import Failure


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
    assert refusal.status == 502


def test_an_error_caused_by_the_request_takes_precedence() -> None:
    limited = upstream_fault(429, {"Retry-After": "3"}, b"")
    wrong = upstream_fault(400, {}, b'{"error": {"message": "bad"}}')
    assert refusal_of([None, limited, wrong]).status == 400  # type: ignore[union-attr]
    assert refusal_of([limited, None]).retry_after == 3  # type: ignore[union-attr]
    assert refusal_of([None]) is None


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


async def completed(body: dict[str, Any], index: int) -> Any:
    """A legacy answer as vLLM gives it."""
    logprobs = {
        "tokens": [" a", " b"],
        "token_logprobs": [-0.5, -1.5],
        "top_logprobs": [{" a": -0.5, " c": -2.0}, None],
        "text_offset": [0, 2],
    }
    choice = {"index": 0, "text": " a b", "finish_reason": "length", "stop_reason": None}
    with_logprobs = "logprobs" in body
    return {
        "id": "cmpl-1",
        "choices": [{**choice, "logprobs": logprobs if with_logprobs else None}],
        "usage": USAGE,
    }


async def legacy(o: Observed, prompt: Any, **more: Any) -> Any:
    """A legacy completion over the wire."""
    body = {"model": "any", "prompt": prompt, "max_tokens": 2, **more}
    return await o.client.post("/v1/completions", json=body)


@pytest.mark.parametrize("prompt", ["Say", [5, 6, 7]])
@pytest.mark.upstream(completes=True, answer=completed)
async def test_the_prompt_is_sent_upstream_unchanged(o: Observed, prompt: Any) -> None:
    result = await legacy(o, prompt, temperature=0.5, logprobs=1)
    assert result.status_code == 200, result.text
    (choice,) = result.json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" a b", "length")
    assert choice["logprobs"]["tokens"] == [" a", " b"]
    assert choice["logprobs"]["token_logprobs"] == [-0.5, -1.5]
    assert choice["logprobs"]["top_logprobs"][0] == {" a": -0.5}
    assert result.json()["usage"]["prompt_tokens"] == 3
    await o.world.closed()
    assert not o.upstream.calls
    assert len(o.upstream.bare) == 4
    wanted = {"model": "tiny", "prompt": prompt, "max_tokens": 2}
    for body in o.upstream.bare:
        assert body == {**wanted, "temperature": 0.5, "logprobs": 1}
    group = next(iter(o.world.state.groups.values()))
    assert group.query == ("Say" if prompt == "Say" else "5 6 7")


@pytest.mark.upstream(completes=True)
async def test_fields_about_the_prompt_reach_the_client(o: Observed) -> None:
    about = {"prompt_logprobs": [None, {"5": {"logprob": -0.5}}], "prompt_token_ids": [5, 6]}

    async def completed_with_prompt(body: dict[str, Any], index: int) -> Any:
        result = await completed(body, index)
        return {**result, "choices": [{**result["choices"][0], **about, "token_ids": [7, 8]}]}

    o.upstream.answer = completed_with_prompt
    answer = await legacy(o, "Say", prompt_logprobs=1, return_token_ids=True)
    (choice,) = answer.json()["choices"]
    assert {name: choice[name] for name in about} == about
    assert choice["token_ids"] == [7, 8]
    assert all(body["prompt_logprobs"] == 1 for body in o.upstream.bare)


@pytest.mark.upstream(completes=True, answer=completed)
async def test_each_of_several_choices_has_a_seed_of_its_own(o: Observed) -> None:
    assert (await legacy(o, "Say", seed=42, n=3)).status_code == 200
    await o.world.closed()
    assert sorted(body["seed"] for body in o.upstream.bare) == [42, 43, 44, 45]
    o.upstream.bare.clear()
    assert (await legacy(o, "Say", seed=42)).status_code == 200
    await o.world.closed()
    assert [body["seed"] for body in o.upstream.bare] == [42] * 4


@pytest.mark.parametrize(
    "o",
    [
        pytest.param(None, marks=pytest.mark.world(proxy={"answer": answer}), id=answer)
        for answer in ("best", "live")
    ],
    indirect=True,
)
@pytest.mark.upstream(completes=True, answer=completed)
async def test_streams_and_several_prompts(o: Observed) -> None:
    streamed = await legacy(o, "Say", stream=True)
    assert streamed.status_code == 200
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert " a b" in streamed.text
    several = await legacy(o, [[1, 2], [3]])
    assert [one["text"] for one in several.json()["choices"]] == [" a b", " a b"]
    await o.world.closed()
    prompts = [body["prompt"] for body in o.upstream.bare]
    assert (prompts.count("Say"), prompts.count([1, 2]), prompts.count([3])) == (4, 4, 4)


async def test_an_upstream_without_completions_gets_a_chat(o: Observed) -> None:
    assert (await legacy(o, "Say")).status_code == 200
    assert (await legacy(o, [5, 6])).status_code == 200
    await o.world.closed()
    conversations = [body["messages"] for body, _ in o.upstream.calls]
    assert [one[0]["content"] for one in conversations] == ["Say"] * 4 + ["5 6"] * 4
    assert not any("ajetc_prompt" in body for body, _ in o.upstream.calls)


@pytest.mark.upstream(tokenizer=False)
async def test_token_ids_need_a_tokenizer(o: Observed) -> None:
    result = await legacy(o, [5, 6])
    assert result.status_code == 400
    assert result.json()["error"]["param"] == "prompt"
    assert not o.world.state.groups


async def refused(body: dict[str, Any], index: int) -> Any:
    return Failure(400, "no such prompt")


@pytest.mark.upstream(completes=True, answer=refused)
async def test_a_refusal_of_the_upstream_reaches_the_client(o: Observed) -> None:
    result = await legacy(o, "Say")
    assert result.status_code == 400
    assert "no such prompt" in result.text


@pytest.mark.parametrize(
    ("prompt", "more"),
    [
        ("Say", {"echo": True, "logprobs": 1, "max_tokens": 1}),
        ([[5, 6], [7]], {"echo": True, "logprobs": 5, "max_tokens": 0}),
        ("Say", {"echo": True, "max_tokens": 0, "stream": True}),
    ],
)
@pytest.mark.upstream(completes=True, answer=completed)
async def test_a_request_about_the_prompt_is_passed_on_unchanged(
    o: Observed, prompt: Any, more: dict[str, Any]
) -> None:
    result = await legacy(o, prompt, **more)
    assert result.status_code == 200, result.text
    expected = await completed(o.upstream.bare[0], 0)
    assert {name: result.json()[name] for name in expected} == expected
    assert o.upstream.bare == [{"model": "tiny", "prompt": prompt, "max_tokens": 2, **more}]
    assert not o.world.state.groups


async def test_log_probs_of_a_prompt_need_a_completions_route(o: Observed) -> None:
    result = await legacy(o, "Say", echo=True, logprobs=1)
    assert result.status_code == 400
    assert "echo with logprobs is not supported" in result.json()["error"]["message"]
    assert not o.upstream.calls
