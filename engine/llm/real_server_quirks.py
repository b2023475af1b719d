"""Broken behaviour of the real server that `--faithful` reproduces, for tests of clients.

docs/guide/engine.md lists each quirk. One-line quirks are in the engine's own rules, longer ones
here.
"""

from typing import Any

from ajet_swarm.common.errors import AjetError
from engine.interface import Completion, Prompt
from engine.llm.chat import ChatRequest

DEFAULT_SYSTEM = "You are a helpful assistant, your name is AgentJet."
OVERFLOW = "AgentJet: Exceeded max model context length."


class AssertionCrash(AjetError):
    """A failed assertion of the real server: a plain 500, then the connection is cut."""

    def __init__(self) -> None:
        super().__init__("The real server fails on an assertion here")


def unauthorized(detail: str) -> dict[str, Any]:
    """Return the body of the 200 with which releases up to MAY26 answer a bad key."""
    return {"status_code": 401, "detail": detail, "headers": None}


def strip_request(request: ChatRequest) -> ChatRequest:
    """Return the request as the real server's worker reads it: messages and tools only."""
    messages = request.messages
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
    return ChatRequest(messages=messages, tools=request.tools)


def overflow(prompt: Prompt) -> Completion:
    """Return the answer to a prompt over the window; nothing is sampled."""
    return Completion(
        text=OVERFLOW,
        prompt_tokens=prompt.tokens,
        tokens=(),
        logprobs=(),
        finish_reason="length",
        truncated=True,
    )
