"""What the tests of the dialects share: requests, winners, events read back."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings

from core.dialects.request import PublicAnswer, call_deltas, public_answer, text_deltas
from core.dialects.writer import Writer
from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.request import ChatRequest, Dialect
from proxy.dialects.responses import RESPONSES

QUICK = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""For property tests: the machine is shared, how long an example takes proves nothing."""
JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "Say hello."}]
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
USAGE = {"prompt_tokens": 17, "completion_tokens": 23, "total_tokens": 40}


DIALECTS: dict[str, Dialect] = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "messages": MESSAGES,
    "responses": RESPONSES,
}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": HELLO},
    "completions": {"prompt": "Say"},
    "messages": {"model": "tiny", "max_tokens": 64, "messages": HELLO},
    "responses": {"input": "x"},
}


def read(name: str, body: Any, **headers: str) -> ChatRequest:
    """A request that was read by the dialect of that name."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {header.replace("_", "-"): value for header, value in headers.items()}
    return DIALECTS[name].read(data, JSON | named, "")


def chat(request_id: str = "1", **fields: Any) -> ChatRequest:
    """A chat request that was read."""
    return read("chat", {**BODIES["chat"], **fields}, x_request_id=request_id)


def legacy(request_id: str = "1", **fields: Any) -> ChatRequest:
    """A legacy request that was read."""
    return read("completions", {**BODIES["completions"], **fields}, x_request_id=request_id)


def writer(request: ChatRequest) -> Writer:
    """Its writer."""
    return DIALECTS[request.dialect].writer(request, "tiny", 1795148451)


def made(message: Mapping[str, Any], finish: str = "stop", **more: Any) -> PublicAnswer:
    """A winner with its completion."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = more.pop("usage", USAGE)
    top = {name: more.pop(name) for name in ("prompt_token_ids",) if name in more}
    return public_answer({"id": "x", "choices": [choice | more], "usage": usage, **top})


def lines(raw: bytes) -> list[str]:
    """The data lines of a stream, the end mark among them."""
    parts = raw.decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [part.removeprefix("data: ") for part in parts]


def events(raw: bytes) -> list[dict[str, Any]]:
    """The events of a stream without its end mark."""
    return [json.loads(line) for line in lines(raw) if line != "[DONE]"]


def named_events(raw: bytes) -> list[dict[str, Any]]:
    """Each event's data in a stream whose events have a name, which must be their type."""
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == ""
    result = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        result.append(event)
    return result


def choices(raw: bytes, index: int = 0) -> list[dict[str, Any]]:
    """The contents of a stream for one choice."""
    return [one for event in events(raw) for one in event["choices"] if one["index"] == index]


def assembled(raw: bytes, index: int = 0) -> dict[str, Any]:
    """What a client makes of one choice of a chat stream."""
    values: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "tokens": []}
    ends = 0
    for choice in choices(raw, index):
        assert ends == 0, "nothing follows the end of a choice"
        delta = choice["delta"]
        values["content"] += delta.get("content") or ""
        values["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(values["calls"])
                assert list(call) == ["id", "type", "index", "function"]
                assert list(call["function"]) == ["name"]
                values["calls"][call["index"]] = [call["id"], call["function"]["name"], ""]
            else:
                assert list(call) == ["index", "function"]
                values["calls"][call["index"]][2] += call["function"]["arguments"]
        values["tokens"] += (choice["logprobs"] or {}).get("content", [])
        if choice["finish_reason"] is not None:
            values["finish_reason"], ends = choice["finish_reason"], 1
    return values


def deltas(answer: PublicAnswer) -> list[dict[str, Any]]:
    """Return all deltas of a complete answer."""
    return [*text_deltas(answer), *call_deltas(answer)]
