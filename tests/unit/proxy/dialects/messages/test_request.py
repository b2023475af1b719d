"""Anthropic Messages requests: what is refused, and what is sent upstream."""

import json
from typing import Any

import pytest

from proxy.dialects.messages.request import count_body, read_count, read_messages
from proxy.http.errors import ApiError

JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "Say hello."}]
ASKED = {"model": "tiny", "max_tokens": 64, "messages": HELLO}
WEATHER = {
    "name": "get_weather",
    "description": "Tells it.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def read(body: Any, **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_messages(data, {**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}})


def converted(*messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = read({**ASKED, "messages": list(messages), **more}).messages
    return records


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# --- the conversation ----------------------------------------------------------------------------


def test_a_plain_request() -> None:
    request = read({**ASKED, "stream": True, "top_p": 0.9, "top_k": 5, "made_up": [1]})
    assert request.dialect == "messages"
    assert request.body == {
        "model": "tiny",
        "max_tokens": 64,
        "messages": HELLO,
        "top_p": 0.9,
        "top_k": 5,
        "made_up": [1],
    }
    assert request.messages == HELLO
    assert (request.model, request.query, request.stream) == ("tiny", "Say hello.", True)
    assert (request.n, request.train, request.include_usage) == (1, True, False)
    assert json.loads(request.encoded()) == request.body


def test_the_system_prompt_comes_first() -> None:
    assert converted(*HELLO, system="Be kind.")[0] == {"role": "system", "content": "Be kind."}
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=0af31;"},
        {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": " Be brief."},
    ]
    assert converted(*HELLO, system=blocks)[0] == {
        "role": "system",
        "content": "Be kind. Be brief.",
    }
    assert converted(*HELLO, system="") == HELLO
    assert converted(*HELLO, system=[]) == HELLO


def test_a_system_item_among_the_messages_stays_where_it_is() -> None:
    note = [{"type": "text", "text": "Today is Friday."}]
    result = converted(*HELLO, {"role": "system", "content": note}, system="Be kind.")
    assert [one["role"] for one in result] == ["system", "user", "system"]
    assert result[2] == {"role": "system", "content": "Today is Friday."}
    nothing = {"role": "system", "content": "x-anthropic-billing-header: cch=1"}
    assert converted(*HELLO, nothing) == HELLO


def test_a_tool_turn_is_converted() -> None:
    assistant = [
        {"type": "thinking", "thinking": "hm, ", "signature": "ab"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "thinking", "thinking": "the tool", "signature": "cd"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "t-1", "name": "get_weather", "input": {"city": "Zürich"}},
        {"type": "tool_use", "id": "t-2", "name": "get_time", "input": {}},
    ]
    answers = [
        {"type": "tool_result", "tool_use_id": "t-1", "content": "Sunny."},
        {
            "type": "tool_result",
            "tool_use_id": "t-2",
            "content": [{"type": "text", "text": "12"}, {"type": "text", "text": "sharp"}],
        },
        {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}},
    ]
    result = converted(
        *HELLO, {"role": "assistant", "content": assistant}, {"role": "user", "content": answers}
    )
    assert result[1:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning": "hm, the tool",
            "tool_calls": [
                {
                    "id": "t-1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'},
                },
                {
                    "id": "t-2",
                    "type": "function",
                    "function": {"name": "get_time", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "t-1", "content": "Sunny."},
        {"role": "tool", "tool_call_id": "t-2", "content": "12\nsharp"},
        {"role": "user", "content": "And now?"},
    ]


def test_unusual_tool_results_are_converted() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    results = [
        {"type": "tool_result", "tool_use_id": "a", "is_error": True},
        {"type": "tool_result", "tool_use_id": "b", "content": "no such file", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [{"type": "image", "source": image}],
        },
        {
            "type": "tool_result",
            "tool_use_id": "d",
            "content": [{"type": "tool_reference", "tool_name": "Bash"}, {"type": "new"}, "plain"],
        },
        {"type": "tool_result"},
    ]
    result = converted({"role": "user", "content": results})
    assert [(one["tool_call_id"], one["content"]) for one in result[:-1]] == [
        ("a", "Error"),
        ("b", "no such file"),
        ("c", ""),
        ("d", "Bash\nplain"),
        ("", ""),
    ]
    url = {"url": "data:image/png;base64,AAAA"}
    assert result[-1] == {"role": "user", "content": [{"type": "image_url", "image_url": url}]}


def test_all_kinds_of_user_content_are_converted() -> None:
    blocks = [
        {"type": "text", "text": "See:"},
        {"type": "image", "source": {"type": "url", "url": "http://example.test/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "document", "source": {"type": "text", "data": "A report."}},
        {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}},
        {"type": "document", "source": {"type": "content", "content": [text_block("Page 1."), 5]}},
        {"type": "search_result", "title": "T", "source": "web", "content": [text_block("Found.")]},
        {"type": "search_result", "content": "odd"},
        {"type": "from_the_future", "payload": [1]},
        {"type": "from_the_future", "text": "but readable"},
    ]
    answer = {"role": "assistant", "content": "Seen."}
    assert converted({"role": "user", "content": blocks}, answer, *HELLO)[0]["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "http://example.test/a.png"}},
        *map(text_block, ("A report.", "Page 1.", "T\nweb\nFound.", "odd", "but readable")),
    ]
    assert converted({"role": "user", "content": []}) == [{"role": "user", "content": ""}]
    assert converted({"role": "ctx", "content": "x"}) == [{"role": "user", "content": "x"}]
    assert converted({"role": "assistant", "content": []})[0] == {
        "role": "assistant",
        "content": "",
    }


PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}}


@pytest.mark.parametrize(
    "content",
    [
        [PDF],
        [{"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}],
        [{"type": "document", "source": {"type": "file", "file_id": "f"}}, text_block("Sum up.")],
        [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
        [{"type": "container_upload", "file_id": "f"}],
        [{"type": "tool_result", "tool_use_id": "c", "content": [PDF]}],
        [{"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}}],
    ],
)
def test_a_file_of_the_newest_turn_is_refused_and_an_older_one_left_out(content: Any) -> None:
    asked = {"role": "user", "content": content}
    later = {"role": "user", "content": "And?"}
    with pytest.raises(ApiError, match="supported only as text") as caught:
        converted(asked, later)
    assert (caught.value.status, caught.value.kind) == (400, "Bad Request")
    assert caught.value.param.startswith("body.messages.0.content.")
    assert converted(asked, {"role": "assistant", "content": "No."}, later)[-1] == later
    with pytest.raises(ApiError, match="supported only as text"):
        converted(asked, {"role": "assistant", "content": "The beginning of the answer"})


# --- tools and settings --------------------------------------------------------------------------


def test_tools_become_functions() -> None:
    bare = {"name": "f", "input_schema": {"properties": {}}, "type": "custom", "strict": True}
    server = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    request = read({**ASKED, "tools": [WEATHER, bare, server]})
    assert request.body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Tells it.",
                "parameters": WEATHER["input_schema"],
            },
        },
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {"properties": {}, "type": "object"},
                "strict": True,
            },
        },
    ]
    assert request.body["tool_choice"] == "auto"
    only_server = read({**ASKED, "tools": [server], "tool_choice": {"type": "any"}})
    assert "tools" not in only_server.body
    assert "tool_choice" not in only_server.body


@pytest.mark.parametrize(
    ("values", "choice"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        (
            {"type": "tool", "name": "get_weather"},
            {"type": "function", "function": {"name": "get_weather"}},
        ),
    ],
)
def test_tool_choice(values: dict[str, Any], choice: Any) -> None:
    body = {**ASKED, "tools": [WEATHER], "tool_choice": values}
    request = read(body)
    assert request.body["tool_choice"] == choice
    assert "parallel_tool_calls" not in request.body
    values["disable_parallel_tool_use"] = True
    assert read(body).body["parallel_tool_calls"] is False


def test_settings_in_the_upstreams_names() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    body = {
        **ASKED,
        "stop_sequences": ["How"],
        "temperature": 0.5,
        "seed": 1,
        "output_config": {"effort": "max", "format": {"type": "json_schema", "schema": schema}},
    }
    request = read(body, x_ajet_train="no")
    assert not request.train
    assert request.body == {
        "model": "tiny",
        "max_tokens": 64,
        "messages": HELLO,
        "stop": ["How"],
        "temperature": 0.5,
        "seed": 1,
        "reasoning_effort": "high",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "json_schema", "schema": schema},
        },
    }


def test_what_claude_code_sends() -> None:
    body = {
        **ASKED,
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
        "messages": [*HELLO, {"role": "system", "content": "Note."}],
        "tools": [{**WEATHER, "cache_control": {"type": "ephemeral"}, "defer_loading": True}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "metadata": {"user_id": "user_0_account__session_5b0e"},
        "safeguards": [  # in auto mode
            {
                "type": "dangerous_tool_use",
                "classifier_context": {
                    "v": 1,
                    "permission_mode": "auto",
                    "home_dir": "/home/somebody",
                    "rules": {"allow": [], "deny": [], "ask": []},
                },
            }
        ],
    }
    request = read(
        body, x_claude_code_session_id="5b0e", anthropic_beta="claude-code-20250219,made-up"
    )
    assert request.session == "5b0e"
    assert list(request.body) == [
        "model",
        "max_tokens",
        "messages",
        "tools",
        "tool_choice",
        "reasoning_effort",
    ]


def test_retries_have_equal_keys() -> None:
    key = read(ASKED).key
    assert read(ASKED).key == key
    assert read(ASKED, x_request_id="other").key == key
    assert read({**ASKED, "max_tokens": 65}).key != key
    assert read(ASKED, x_api_key="k").key != key
    assert read_count(json.dumps(ASKED).encode(), JSON).key != key


# --- counting ------------------------------------------------------------------------------------


def test_counting_parses_the_same_prompt_without_max_tokens() -> None:
    body = {"model": "tiny", "messages": HELLO, "system": "S", "tools": [WEATHER]}
    data = json.dumps(body).encode()
    counted = read_count(data, JSON)
    request = read({**body, "max_tokens": 5})
    assert counted.messages == request.messages
    assert counted.body["tools"] == request.body["tools"]
    assert (counted.train, counted.stream) == (False, False)
    with pytest.raises(ApiError, match=r"body\.messages"):
        read_count(b"{}", JSON)


def test_the_answer_to_counting() -> None:
    """Recorded from a real server."""
    body = b'{"input_tokens":17,"context_management":{"original_input_tokens":17}}'
    assert count_body(17) == body
