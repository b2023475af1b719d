"""`/v1/responses`: read into a chat request and written back."""

from typing import Any

import pytest

from engine.interface import Completion
from engine.llm.chat import checked
from engine.llm.forms import read_responses
from engine.server.lifecycle import EngineError
from tests.support.engine.client import Driver
from tests.support.proxy.llm_forms import bearer, draw_a_call, read


def test_responses_input_is_read() -> None:
    body = checked(
        {
            "model": "m",
            "instructions": "be brief",
            "input": [
                "plain",
                {"type": "message", "role": "developer", "content": "rules"},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "a"},
                        {"type": "input_image", "image_url": "x"},
                        {"type": "output_text", "text": "b"},
                    ],
                },
                {"role": "critic", "content": "odd role"},
                {"type": "reasoning", "summary": []},
                {"type": "message", "role": "user", "content": ""},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "3"},
                {"type": "web_search_call"},
            ],
            "tools": [
                {"type": "function", "name": "add", "parameters": {"type": "object"}},
                {"type": "web_search"},
            ],
            "max_output_tokens": 7,
            "temperature": 0.5,
            "seed": 3,
        }
    )
    chat = read_responses(body)
    assert [(message["role"], message["content"]) for message in chat.conversation()] == [
        ("system", "be brief"),
        ("user", "plain"),
        ("system", "rules"),
        ("user", "a\nb"),
        ("user", "odd role"),
        ("assistant", ""),
        ("tool", "3"),
    ]
    assert chat.conversation()[5]["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert chat.offered_tools() == [
        {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    ]
    assert (chat.max_tokens, chat.temperature, chat.seed) == (7, 0.5, 3)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["add", "now"]),
        ("auto", ["add", "now"]),
        ("required", ["add", "now"]),
        ("none", []),
        ({"type": "none"}, []),
        ({"type": "function", "name": "now"}, ["now"]),
    ],
)
def test_responses_tool_choice(choice: Any, names: list[str]) -> None:
    tools = [{"type": "function", "name": name} for name in ("add", "now")]
    body = {"input": "x", "tools": tools, "tool_choice": choice}
    offered = read_responses(body).offered_tools() or []
    assert [tool["function"]["name"] for tool in offered] == names


@pytest.mark.parametrize("nothing", ["", [], [{"type": "reasoning"}], [""]])
def test_responses_with_nothing_to_answer(nothing: Any) -> None:
    with pytest.raises(EngineError, match="input") as refused:
        read_responses({"input": nothing})
    assert refused.value.status == 400


async def test_a_response(d: Driver) -> None:
    await d.start()
    episode = await d.claim()
    body = {"model": "asked", "input": "hello", "instructions": "be brief"}
    answer = (await d.http.post("/v1/responses", headers=bearer(episode), json=body)).json()
    assert (answer["object"], answer["status"], answer["model"]) == (
        "response",
        "completed",
        "asked",
    )
    (item,) = answer["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    (part,) = item["content"]
    assert len(part["text"].split()) == 3
    prompt = len("system: be brief\nuser: hello")
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (prompt, 3)
    stored = (await d.http.post("/replay_latest_llm_call")).json()
    assert (stored["format"], stored["input"], stored["output"]) == ("responses", body, answer)
    await d.end(episode, "t")
    (finished,) = d.engine.pool.finished["t"]
    assert len(finished.completions) == 1


async def test_a_response_that_was_cut(d: Driver) -> None:
    await d.start()
    policy = d.engine.policy_holder.policy
    assert policy is not None

    async def sample(prompt: Any, params: Any, on_text: Any = None) -> Completion:
        return Completion("half an", (1,), (2,), (-1.0,), "length")

    policy.sample = sample  # type: ignore[method-assign]
    episode = await d.claim()
    body = {"input": "hello"}
    answer = (await d.http.post("/v1/responses", headers=bearer(episode), json=body)).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.slow
async def test_a_response_as_events(d: Driver) -> None:
    await d.start()
    body = {"input": "hello", "stream": True}
    headers = bearer(await d.claim())
    events = read((await d.http.post("/v1/responses", headers=headers, json=body)).text)
    assert [name for name, _ in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [data["sequence_number"] for _, data in events] == list(range(1, len(events) + 1))
    assert all(name == data["type"] for name, data in events)
    whole = "".join(data["delta"] for name, data in events if name.endswith("text.delta"))
    final = events[-1][1]["response"]
    assert final["output"][0]["content"][0]["text"] == whole
    assert events[0][1]["response"]["id"] == final["id"]
    items = {data["item_id"] for _, data in events if "item_id" in data}
    assert items == {final["output"][0]["id"]}
    assert final["ajetc"] == {"truncated": False, "step": 0}
    assert (await d.http.post("/replay_latest_llm_call")).json()["output"] == final


async def test_a_function_call_as_events(d: Driver) -> None:
    await d.start()
    draw_a_call(d)
    headers = bearer(await d.claim())
    body = {"input": "hello", "stream": True}
    events = read((await d.http.post("/v1/responses", headers=headers, json=body)).text)
    assert [name for name, _ in events][2:] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    (item,) = events[-1][1]["response"]["output"]
    assert (item["type"], item["name"], item["arguments"]) == (
        "function_call",
        "add",
        '{"a": 1}',
    )
    assert item["call_id"].startswith("call_")
