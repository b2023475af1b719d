"""What `--faithful` turns on: the real server's broken behaviour, for tests of clients.

docs/guide/engine.md lists each quirk with its section of the protocol. A quirk that is one line of
a rule stays in that rule; longer ones are here.
"""

from typing import Any

from ajet_swarm.common.errors import AjetError
from engine.interface import Completion, Prompt
from engine.llm.chat import ChatRequest, Message

DEFAULT_SYSTEM = "You are a helpful assistant, your name is AgentJet."
OVERFLOW = "AgentJet: Exceeded max model context length."


class Crash(AjetError):
    """An assertion of the real server: a plain 500, then the connection is cut."""

    def __init__(self) -> None:
        super().__init__("The real server fails on an assertion here")


def unauthorized(detail: str) -> dict[str, Any]:
    """Body of the 200 that up to MAY26 a bad key is answered with."""
    return {"status_code": 401, "detail": detail, "headers": None}


def as_read(request: ChatRequest) -> ChatRequest:
    """The request as the real server's worker sees it: messages and tools alone."""
    messages = request.messages
    if messages[0].role != "system":
        messages = [Message(role="system", content=DEFAULT_SYSTEM), *messages]
    return ChatRequest(messages=messages, tools=request.tools)


def overflow(prompt: Prompt) -> Completion:
    """The answer to a prompt over the window; nothing is sampled."""
    return Completion(
        text=OVERFLOW,
        prompt_tokens=prompt.tokens,
        tokens=(),
        logprobs=(),
        finish_reason="length",
        truncated=True,
    )
