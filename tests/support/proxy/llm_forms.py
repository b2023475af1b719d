"""What the tests of the three LLM routes share."""

import json
from typing import Any

from engine.interface import Completion, ToolCall
from tests.support.engine.client import Driver

ASK_MESSAGES: dict[str, Any] = {
    "model": "asked",
    "max_tokens": 20,
    "messages": [{"role": "user", "content": "hi"}],
}

Event = tuple[str, dict[str, Any]]


def read(text: str) -> list[Event]:
    """Named events."""
    result = []
    for block in text.split("\n\n"):
        if block.startswith("event: "):
            name, _, data = block.partition("\n")
            result.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return result


def bearer(episode: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {episode['openai_api_key']}"}


def draw_a_call(d: Driver, text: str = "", arguments: str = '{"a": 1}') -> None:
    policy = d.engine.policy_holder.policy
    assert policy is not None

    async def sample(prompt: Any, params: Any, on_text: Any = None) -> Completion:
        if text and on_text is not None:
            on_text(text)
        return Completion(
            text=text,
            prompt_tokens=(1,),
            tokens=(2,),
            logprobs=(-0.1,),
            finish_reason="tool_calls",
            tool_calls=(ToolCall("add", arguments),),
        )

    policy.sample = sample  # type: ignore[method-assign]
