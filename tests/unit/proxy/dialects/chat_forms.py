"""What the tests of chat and legacy completions share: requests, winners, events read back."""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings

from proxy.dialects.chat.chunks import fingerprint
from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import CHAT
from proxy.dialects.request import ChatRequest, PublicAnswer, public_answer
from proxy.dialects.writer import Writer

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
CAPTURED = "vllm-0.32.0-5b592786"


def chat(request_id: str = "1", **fields: Any) -> ChatRequest:
    """A chat request that was read."""
    body = json.dumps({"messages": HELLO, **fields}).encode()
    return CHAT.read(body, {**JSON, "x-request-id": request_id}, "")


def legacy(request_id: str = "1", **fields: Any) -> ChatRequest:
    """A legacy request that was read."""
    body = json.dumps({"prompt": "Say", **fields}).encode()
    return COMPLETIONS.read(body, {**JSON, "x-request-id": request_id}, "")


def writer(request: ChatRequest) -> Writer:
    """Its writer."""
    dialect = CHAT if request.dialect == "chat" else COMPLETIONS
    return dialect.writer(request, "tiny", 1795148451)


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


def choices(raw: bytes, index: int = 0) -> list[dict[str, Any]]:
    """The contents of a stream for one choice."""
    return [one for event in events(raw) for one in event["choices"] if one["index"] == index]


def ours(captured: str) -> str:
    """A captured answer with our name in it."""
    return captured.replace(CAPTURED, fingerprint())


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
