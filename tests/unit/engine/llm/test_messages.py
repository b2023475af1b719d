"""`/v1/messages`: read into a chat request and written back."""

import json
from typing import Any

import pytest

from engine.interface import Completion
from engine.llm.chat import ChatEncoder, ChatRequest, checked
from engine.llm.forms import MessagesEncoder, read_messages
from engine.server.lifecycle import EngineError
from tests.support.engine.client import Driver
from tests.support.proxy.llm_forms import ASK_MESSAGES, bearer, draw_a_call, read


def test_messages_are_read() -> None:
    body = checked(
        {
            "model": "m",
            "max_tokens": 9,
            "system": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            "messages": [
                {"role": "system", "content": "skipped"},
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "so"},
                        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "well?"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "text", "text": "3"}],
                        },
                        {"type": "image", "source": {}},
                    ],
                },
            ],
            "tools": [{"name": "add", "description": "sums", "input_schema": {"type": "object"}}],
            "stop_sequences": ["END"],
        }
    )
    chat = read_messages(body)
    conversation = chat.conversation()
    assert [(message["role"], message["content"]) for message in conversation] == [
        ("system", "one\ntwo"),
        ("user", "hi"),
        ("assistant", "so"),
        ("tool", "3"),
        ("user", "well?"),
    ]
    assert conversation[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert conversation[3]["tool_call_id"] == "t1"
    assert (chat.max_tokens, chat.stop) == (9, ["END"])
    assert chat.offered_tools() == [
        {
            "type": "function",
            "function": {"name": "add", "description": "sums", "parameters": {"type": "object"}},
        }
    ]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["add", "now"]),
        ({"type": "auto"}, ["add", "now"]),
        ({"type": "any"}, ["add", "now"]),
        ({"type": "none"}, []),
        ({"type": "tool", "name": "now"}, ["now"]),
    ],
)
def test_messages_tool_choice(choice: Any, names: list[str]) -> None:
    body = checked(
        {
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": name, "input_schema": {}} for name in ("add", "now")],
            "tool_choice": choice,
        }
    )
    offered = read_messages(body).offered_tools() or []
    assert [tool["function"]["name"] for tool in offered] == names


def test_messages_with_nothing_to_answer() -> None:
    image = {"role": "user", "content": [{"type": "image", "source": {}}]}
    with pytest.raises(EngineError, match="messages"):
        read_messages(checked({"messages": [image]}))


def test_files_and_tools_of_other_servers_are_left_out() -> None:
    document = {"type": "document", "source": {"type": "base64", "data": "AAAA"}}
    parts = [document, {"type": "text", "text": "x"}]
    request = read_messages(
        checked(
            {
                "messages": [{"role": "user", "content": parts}],
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            }
        )
    )
    assert request.conversation() == [{"role": "user", "content": "x"}]
    assert request.offered_tools() is None


@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
async def test_a_message(d: Driver, header: str) -> None:
    await d.start()
    headers = {header: (await d.claim())["openai_api_key"]}
    answer = (await d.http.post("/v1/messages", headers=headers, json=ASK_MESSAGES)).json()
    assert (answer["type"], answer["role"], answer["model"]) == (
        "message",
        "assistant",
        "asked",
    )
    (block,) = answer["content"]
    assert (block["type"], len(block["text"].split())) == ("text", 3)
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)
    assert answer["usage"] == {"input_tokens": len("user: hi"), "output_tokens": 3}
    body = (await d.http.post("/replay_latest_llm_call")).json()
    assert (body["format"], body["output"]) == ("messages", answer)


async def test_a_message_as_events(d: Driver) -> None:
    await d.start()
    headers = bearer(await d.claim())
    body = {**ASK_MESSAGES, "stream": True}
    events = read((await d.http.post("/v1/messages", headers=headers, json=body)).text)
    assert [name for name, _ in events] == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("text", ["", "let me see"])
@pytest.mark.parametrize(("arguments", "read_as"), [('{"a": 1}', {"a": 1}), ("{", {}), ("[1]", {})])
async def test_a_tool_use(d: Driver, text: str, arguments: str, read_as: Any) -> None:
    await d.start()
    draw_a_call(d, text, arguments)
    headers = bearer(await d.claim())
    answer = (await d.http.post("/v1/messages", headers=headers, json=ASK_MESSAGES)).json()
    assert [block["type"] for block in answer["content"]] == ["text"] * bool(text) + ["tool_use"]
    assert answer["content"][-1]["input"] == read_as
    assert answer["stop_reason"] == "tool_use"
    body = {**ASK_MESSAGES, "stream": True}
    events = read((await d.http.post("/v1/messages", headers=headers, json=body)).text)
    starts = [data for name, data in events if name == "content_block_start"]
    assert [start["index"] for start in starts] == list(range(len(starts)))
    assert starts[-1]["content_block"]["type"] == "tool_use"
    (partial,) = [
        data["delta"]["partial_json"]
        for _, data in events
        if data.get("delta", {}).get("type") == "input_json_delta"
    ]
    assert json.loads(partial) == read_as


@pytest.mark.parametrize("form", ["chat", "messages"])
def test_the_stop_text_is_named(form: str) -> None:
    drawn = Completion("so far", (1,), (2,), (-1.0,), "stop", stop_reason="END")
    request = ChatRequest(messages=[])
    encoder = ChatEncoder if form == "chat" else MessagesEncoder
    answer = encoder("m", request, {})
    whole = answer.whole(drawn)
    body = json.loads(answer.closing(drawn).split(b"data: ")[-2].split(b"\n")[0])
    if form == "chat":
        for choice in (whole["choices"][0], body["choices"][0]):
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")
    else:
        for value in (whole, body["delta"]):
            assert (value["stop_reason"], value["stop_sequence"]) == ("stop_sequence", "END")
