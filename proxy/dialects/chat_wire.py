"""Chat completions on the wire as vLLM writes them: the whole answer, or chunks. No I/O.

Key sets, their order and which keys are null follow captures of a real server.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from core.version import version
from proxy.conversation import Winner, deltas

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


def fingerprint() -> str:
    """What stands where vLLM tells its own version."""
    return f"ajet-console-{version()}"


def completion_body(one: Winner, completion_id: str, created: int, model: str) -> bytes:
    """The answer of a request that does not stream."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": one.content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if one.tool_calls:
        message["tool_calls"] = one.tool_calls
    message["reasoning"] = one.reasoning
    choice = {
        "index": 0,
        "message": message,
        "logprobs": one.logprobs,
        "finish_reason": one.finish_reason,
        "stop_reason": one.stop_reason,
        "token_ids": one.token_ids,
        "routed_experts": None,
    }
    return _encode(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": fingerprint(),
            "usage": one.usage,
            "prompt_logprobs": None,
            "prompt_token_ids": one.prompt_token_ids,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


class ChunkWriter:
    """Writes the events of one stream: one id, one time, one model in all of them."""

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        *,
        include_usage: bool = False,
        continuous_usage: bool = False,
    ) -> None:
        self._head = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._continuous = include_usage and continuous_usage

    def role(self) -> bytes:
        """The first event: sent when the request is admitted, before any token."""
        return self._event(
            [_choice({"role": "assistant", "content": ""})],
            {"prompt_token_ids": None, "prompt_text": None},
        )

    def keepalive(self) -> bytes:
        """An event that changes nothing; clients count events, comments do not keep them alive."""
        return self._event([_choice({})])

    def answer(self, one: Winner) -> bytes:
        """All events of the winner, with the end marker."""
        return b"".join(self._answer(one)) + DONE

    def error(self, body: bytes) -> bytes:
        """What ends a stream that has begun and cannot be finished."""
        return b"data: " + body + b"\n\n" + DONE

    def _answer(self, one: Winner) -> Iterator[bytes]:
        usage = {name: value for name, value in one.usage.items() if value is not None}
        running = {"usage": usage} if self._continuous else {}
        logprobs = one.logprobs
        for delta in deltas(one):
            choice = _choice(delta)
            choice["logprobs"], logprobs = logprobs, None
            choice["token_ids"] = None
            yield self._event([choice], running)
        last = _choice({})
        last |= {
            "logprobs": logprobs,
            "finish_reason": one.finish_reason,
            "stop_reason": one.stop_reason,
            "token_ids": one.token_ids,
        }
        mark = {"system_fingerprint": fingerprint()}
        if not self._include_usage:
            yield self._event([last], mark)
            return
        yield self._event([last], running)
        yield self._event([], {"usage": usage, **mark})

    def _event(self, choices: list[dict[str, Any]], more: Mapping[str, Any] | None = None) -> bytes:
        chunk: dict[str, Any] = {**self._head, "choices": choices}
        if more:
            chunk |= more
        return b"data: " + _encode(chunk) + b"\n\n"


def _choice(delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
