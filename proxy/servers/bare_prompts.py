"""Bare prompts: legacy completions without a chat template, where the server completes texts.

The request is that of a chat with the prompt beside it (`PROMPT`), so that everything between the
dialect and the server is the same for both. In observe mode it goes to the upstream's own
`/completions`, and its answer comes back as that of a chat.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from ajet_swarm.http.interface import Request, Response
from proxy.http.upstream_transport import ErrorMappingTransport

PROMPT = "ajetc_prompt"
"""Field of a request for the prompt as it came, text or token ids; the embedded engine reads it."""
CHAT, BARE = "/chat/completions", "/completions"
_OF_THE_PROMPT = ("prompt_token_ids", "prompt_logprobs")
"""What a legacy choice tells of its prompt; a chat completion tells it beside its choices."""

_encode = msgspec.json.Encoder().encode


class BareTransport:
    """A transport that asks for a completion where a chat completion is asked for.

    Args:
        checked: How requests travel.
    """

    def __init__(self, checked: ErrorMappingTransport) -> None:
        self._checked = checked
        self.stream = checked.stream

    async def request(self, request: Request) -> Response:
        """See `Transport.request`; the body is a chat request with `PROMPT`."""
        answer = await self._checked.request(
            replace(
                request,
                url=request.url.removesuffix(CHAT) + BARE,
                body=completion_request(request.body or b"{}"),
            )
        )
        return Response(answer.status, answer.headers, chat_answer(answer.body))


def completion_request(body: bytes) -> bytes:
    """The legacy request behind a chat request with `PROMPT`."""
    asked: dict[str, Any] = msgspec.json.decode(body)
    del asked["messages"]
    asked["prompt"] = asked.pop(PROMPT)
    count = asked.pop("top_logprobs", None)
    if asked.get("logprobs"):
        asked["logprobs"] = count or 0
    return _encode(asked)


def chat_answer(body: bytes) -> bytes:
    """A legacy completion as a chat completion; what is none stays as it is."""
    try:
        told = msgspec.json.decode(body)
        choice = told["choices"][0]
        text = choice["text"]
        message = {"role": "assistant", "content": text}
        made = {**choice, "message": message, "logprobs": _logprobs(choice.get("logprobs"))}
        prompt = {name: choice.get(name) for name in _OF_THE_PROMPT}
        return _encode({**told, "choices": [made], **prompt})
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError, ValueError):
        return body


def _logprobs(legacy: Any) -> dict[str, Any] | None:
    if not isinstance(legacy, dict):
        return None
    tokens, values = legacy["tokens"], legacy["token_logprobs"]
    tops = legacy.get("top_logprobs") or [None] * len(tokens)
    return {
        "content": [
            _entry(token, value)
            | {"top_logprobs": [_entry(name, one) for name, one in (top or {}).items()]}
            for token, value, top in zip(tokens, values, tops, strict=True)
        ]
    }


def _entry(token: str, value: Any) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode(errors="replace"))}
