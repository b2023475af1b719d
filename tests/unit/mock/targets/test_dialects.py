"""Rows with images, tools, calls and results in each API form."""

from typing import Any

import msgspec
import pytest

from mock.targets.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from proxy.dialects.messages import MESSAGES as MESSAGES_API
from proxy.dialects.responses import RESPONSES as RESPONSES_API

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
WEB_IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
FUNCTION = {"name": "weather", "description": "", "parameters": {"type": "object"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Is this Oslo?"}, IMAGE, WEB_IMAGE]},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Sure?"},
]
TOOLS = [{"type": "function", "function": FUNCTION}]


def read_back(form: Dialect) -> tuple[list[dict[str, Any]], Any]:
    """Return messages and tools as the API of this form reads them."""
    data = msgspec.json.encode(form.body("m", CONVERSATION, TOOLS))
    api = MESSAGES_API if form is MESSAGES else RESPONSES_API
    request = api.read(data, {"content-type": "application/json"}, "")
    return request.messages, request.body["tools"]


def test_a_chat_completion_has_the_messages_and_tools_as_they_are() -> None:
    assert CHAT.body("m", CONVERSATION, TOOLS) == {
        "model": "m",
        "messages": CONVERSATION,
        "tools": TOOLS,
    }
    assert "tools" not in CHAT.body("m", CONVERSATION, ())


@pytest.mark.parametrize("form", [RESPONSES, MESSAGES], ids=lambda form: form.name)
def test_another_api_reads_the_same_conversation(form: Dialect) -> None:
    messages, tools = read_back(form)
    urls = [
        part["image_url"]["url"] for part in messages[1]["content"] if part["type"] == "image_url"
    ]
    assert urls == ["data:image/png;base64,AAAA", "https://example.com/a.png"]
    texts = [part["text"] for part in messages[1]["content"] if part["type"] == "text"]
    assert texts == ["Is this Oslo?"]
    for message, expected in zip(messages, CONVERSATION, strict=True):
        assert message["role"] == expected["role"]
        if expected["role"] != "user" or isinstance(expected["content"], str):
            assert message["content"] == expected["content"]
    assert messages[2]["tool_calls"] == [CALL]
    assert messages[3]["tool_call_id"] == "c1"
    assert [tool["function"]["name"] for tool in tools] == ["weather"]
    assert tools[0]["function"]["parameters"] == {"type": "object"}
