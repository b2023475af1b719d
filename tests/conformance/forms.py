"""The upstream's answers in these tests, the requests, and the texts of the answers."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.proxy.front import BODIES, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import Answer, wire

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
PATHS = tuple(BODIES)

HELLO: dict[str, Any] = BODIES[CHAT]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
TOOLED = {**HELLO, "tools": [WEATHER]}
"""A chat request with a tool."""


AnswerFunction = Callable[[str, dict[str, Any], int], Awaitable[Any]]


# --- the upstream's answers ---------------------------------------------------------------------


def completion(
    content: str | None = None,
    *,
    reasoning: str | None = None,
    calls: Iterable[tuple[str, str]] = (),
    finish: str = "stop",
    tokens: tuple[int, int, int] = (17, 23, 8),
    **choice: Any,
) -> dict[str, Any]:
    """A chat completion as vLLM gives it.

    Args:
        content: The text.
        reasoning: The reasoning.
        calls: Function and arguments of each tool call.
        finish: The reason to stop.
        tokens: Of the prompt, of the answer, and of the reasoning in it.
        choice: Further fields of the choice.
    """
    message: dict[str, Any] = {"role": "assistant", "content": content, "reasoning": reasoning}
    result = [
        {"id": f"call-{at}", "type": "function", "function": {"name": name, "arguments": text}}
        for at, (name, text) in enumerate(calls)
    ]
    if result:
        message["tool_calls"] = result
    prompt, answer, thought = tokens
    return {
        "id": "chatcmpl-upstream",
        "object": "chat.completion",
        "created": 1,
        "model": "upstream",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if result and finish == "stop" else finish,
                "stop_reason": None,
                **choice,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": None,
            "completion_tokens_details": {"reasoning_tokens": thought},
        },
    }


GREETING = completion(
    "\n\nHello there! How can I help you today?", reasoning="\nThe user wants a greeting.\n"
)
CALL = completion(
    "\n\n",
    reasoning="\nI need the tool.\n",
    calls=[("get_weather", '{"city": "Paris"}')],
    tokens=(42, 33, 7),
)
TWO_CALLS = completion(
    "\n\nLet me check both.\n",
    reasoning="\nTwo calls.\n",
    calls=[("get_weather", '{"city": "Paris"}'), ("get_weather", '{"city": "Rome"}')],
)


def always(answer: Any) -> AnswerFunction:
    """Every candidate gives the same answer."""

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> Any:
        return answer

    return candidate_answer


def each(*answers: Any) -> AnswerFunction:
    """Candidates give these answers in the order of their calls; the last one is repeated."""
    left = list(answers)

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    return candidate_answer


# --- requests -----------------------------------------------------------------------------------


async def ask(
    f: Front, path: str, body: Any, *, seconds: float = 20.0, headers: dict[str, str] | None = None
) -> Answer:
    """One request on a connection of its own, and its whole answer."""
    async with wire(f.url) as line:
        await line.ask("POST", path, body, **(headers or {}))
        return await line.answer(seconds)


async def ask_json(
    f: Front, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Any:
    """The answer to a request that is not streamed."""
    answer = await ask(f, path, body, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json()


async def chunks(f: Front, body: dict[str, Any], path: str = CHAT) -> list[Any]:
    """The chunks of a chat or legacy stream; checks its end mark."""
    result = await stream(f, path, body)
    assert result[-1] == ("", "[DONE]")
    return [data for _, data in result[:-1]]


async def stream(
    f: Front, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> list[tuple[str, Any]]:
    """The events of a streamed answer: name and data; the end mark as text."""
    answer = await ask(f, path, {**body, "stream": True}, headers=headers)
    assert answer.status == 200, answer.body
    return events(answer.body)


def events(data: bytes) -> list[tuple[str, Any]]:
    """Name and data of each event; every one is whole, and the names are those in the data."""
    result = []
    assert data.endswith(b"\n\n")
    for block in data.decode().removesuffix("\n\n").split("\n\n"):
        if block.startswith(": x-ajet-weights: "):
            continue
        *first, last = block.split("\n")
        assert len(first) <= 1, block
        name = first[0].removeprefix("event: ") if first else ""
        text = last.removeprefix("data: ")
        assert text != last, block
        value: Any = text if text == "[DONE]" else json.loads(text)
        assert not name or value["type"] == name
        result.append((name, value))
    return result


@contextlib.asynccontextmanager
async def front(
    home: Path, swarm: ScriptedSwarm | None = None, **sections: Any
) -> AsyncIterator[Front]:
    """A front with these settings; at the end all of its groups are closed."""
    async with fronted(home, swarm, settings(**sections)) as f:
        yield f
        await settle(f)


async def settle(f: Front) -> None:
    """Wait until all groups are closed; check that no episode is claimed."""
    await f.world.closed()
    assert not f.world.swarm.claimed()


# --- comparing ----------------------------------------------------------------------------------


def text_of(chat_chunks: Iterable[Any], field: str = "content", index: int = 0) -> str:
    """The text of one field of one choice in a chat stream."""
    return "".join(
        choice["delta"].get(field) or ""
        for chunk in chat_chunks
        for choice in chunk["choices"]
        if choice["index"] == index
    )


def text_in(path: str, body: bytes) -> str:
    """The text of an answer, from its deltas."""
    result = []
    for _, event in events(body):
        if event == "[DONE]":
            continue
        if path == "/v1/responses":
            result.append(event["delta"] if event["type"].endswith("output_text.delta") else "")
        elif path == "/v1/messages":
            result.append(event.get("delta", {}).get("text", ""))
        else:
            for choice in event["choices"]:
                result.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
    return "".join(result)


def same(one: Any, other: Any) -> None:
    """Two values are equal, and so is the order of their keys."""
    assert one == other
    assert json.dumps(one) == json.dumps(other)
