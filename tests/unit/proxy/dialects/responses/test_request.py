"""Responses requests as chat completions, from bytes."""

import json
from typing import Any

import pytest

from proxy.dialects.request import ChatRequest
from proxy.dialects.responses.request import RESPONSES
from proxy.http.errors import ApiError

JSON = {"content-type": "application/json"}
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def read(body: Any, **headers: str) -> ChatRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return RESPONSES.read(json.dumps(body).encode(), JSON | named, "127.0.0.1")


def refused(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(body)
    return caught.value


def messages(items: Any, **more: Any) -> list[dict[str, Any]]:
    return read({"model": "tiny", "input": items, **more}).messages


def echo(request: ChatRequest) -> dict[str, Any]:
    return {key: json.loads(bytes(value)) for key, value in request.extra.echo.items()}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def call(call_id: str, **more: Any) -> dict[str, Any]:
    result = {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": "{}"}
    return {**result, **more}


def output(call_id: str, text: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": text}


# --- messages -----------------------------------------------------------------------------------


def test_a_string_is_a_user_message() -> None:
    request = read({"model": "tiny", "input": "Say hello.", "instructions": "Be kind."})
    assert request.body["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Say hello."},
    ]
    assert request.messages == request.body["messages"]
    assert (request.dialect, request.query, request.model) == ("responses", "Say hello.", "tiny")


def test_leading_system_messages_are_joined_and_a_later_developer_message_is_the_users() -> None:
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "system", "content": [{"type": "input_text", "text": "c"}, {"text": "d"}]},
        user("question"),
        {"role": "developer", "content": "now in plan mode"},
        {"role": "system", "content": "late"},
        {"role": "critic", "content": "hm"},
    ]
    request = read({"input": items, "instructions": "a"})
    assert request.messages == [
        {"role": "system", "content": "a\n\nb\n\nc\nd"},
        {"role": "user", "content": "question"},
        {"role": "user", "content": "now in plan mode"},
        {"role": "system", "content": "late"},
        {"role": "critic", "content": "hm"},
    ]
    assert request.query == "question"


def test_instructions_alone_are_a_conversation() -> None:
    assert messages([], instructions="Go.") == [{"role": "system", "content": "Go."}]
    assert refused({"input": []}).param == "input"


def test_parts_become_the_parts_of_a_chat_message() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
    parts = [
        {"type": "input_text", "text": "see"},
        image,
        {"type": "input_image", "image_url": "https://x/y.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:,"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    ]
    (message,) = messages([{"role": "user", "content": parts}])
    url = image["image_url"]
    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:,"}},
        parts[-1],
    ]


def test_a_file_that_would_be_stored_or_fetched_is_refused() -> None:
    for part in (
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "file_url": "https://x/a.pdf"},
    ):
        assert refused({"input": [{"role": "user", "content": [part]}]}).status == 400


def test_one_turn_of_the_assistant_is_one_message() -> None:
    items = [
        user("weather?"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}
        | {"content": [{"type": "reasoning_text", "text": "I need the tool."}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
        | {"content": [{"type": "output_text", "text": "Let me "}, {"text": "look."}]},
        call("c1", arguments='{"city": "Paris"}'),
        call("c2", arguments={"city": "Rome"}),
        output("c1", "sunny"),
        output("c2", [{"type": "input_text", "text": "rain"}]),
        {"role": "assistant", "content": "Both known."},
    ]
    first = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    second = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    assert messages(items) == [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning": "I need the tool.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": first},
                {"id": "c2", "type": "function", "function": second},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {"role": "assistant", "content": "Both known."},
    ]


def test_a_call_alone_has_no_content_and_reasoning_alone_an_empty_one() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert messages([user("a"), call("c1")])[1]["content"] is None
    assert messages([user("a"), thought])[1] == {
        "role": "assistant",
        "content": "",
        "reasoning": "hm",
    }
    assert messages([user("a"), {"type": "reasoning", "encrypted_content": "x"}]) == [
        {"role": "user", "content": "a"}
    ]


def test_two_answers_in_a_row_stay_two_but_calls_stay_with_their_outputs() -> None:
    result = {"role": "assistant", "content": "x"}
    assert [m["content"] for m in messages([user("a"), result, result])] == ["a", "x", "x"]
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]}
    items = [user("a"), call("c1"), thought, result, result, call("c2"), output("c1", 1)]
    _, turn, tool = messages(items)
    assert [one["id"] for one in turn["tool_calls"]] == ["c1", "c2"]
    assert (turn["content"], turn["reasoning"]) == ("x\nx", "t")
    assert tool["content"] == "1"


def test_custom_calls_carry_their_text_as_input() -> None:
    items = [
        user("patch"),
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": 'a "b"\n'},
        output("c1", "done", "custom_tool_call_output"),
    ]
    _, turn, tool = messages(items)
    (result,) = turn["tool_calls"]
    assert json.loads(result["function"]["arguments"]) == {"input": 'a "b"\n'}
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "done"}


def test_calls_of_client_tools_need_their_output_and_unknown_items_are_left_out() -> None:
    shell = {"type": "local_shell_call", "call_id": "c1", "action": {"command": ["ls"]}}
    items = [
        user("go"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": 5},
        {"no": "type"},
        {**shell, "id": "ls_1", "status": "completed"},
        {**shell, "call_id": "c9"},
        output("c1", "a.txt", "local_shell_call_output"),
    ]
    _, turn, tool = messages(items)
    (result,) = turn["tool_calls"]
    assert result["function"]["name"] == "local_shell"
    assert json.loads(result["function"]["arguments"]) == {"action": {"command": ["ls"]}}
    assert tool["tool_call_id"] == "c1"


def test_an_unfinished_answer_is_continued() -> None:
    begun = {"type": "message", "role": "assistant", "content": "Once", "status": "incomplete"}
    upstream_body = read({"input": [user("tell"), begun]}).body
    assert (upstream_body["continue_final_message"], upstream_body["add_generation_prompt"]) == (
        True,
        False,
    )
    upstream_body = read({"input": [user("tell"), begun, user("more")]}).body
    assert "continue_final_message" not in upstream_body


def test_a_reference_to_an_unknown_item_is_refused() -> None:
    no = refused({"input": [user("a"), {"type": "item_reference", "id": "fc_1"}]})
    assert (no.status, no.param) == (404, "input")
    assert "fc_1" in no.message


# --- other fields -------------------------------------------------------------------------------


def test_fields_are_converted_to_those_of_a_chat_completion() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    upstream_body = read(
        {
            "model": "tiny",
            "input": "x",
            "max_output_tokens": 9,
            "top_p": 0.5,
            "text": {"format": schema, "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
            "top_logprobs": 2,
            "stop": ["END"],
            "tools": [WEATHER],
            "parallel_tool_calls": False,
            "made_up": {"a": 1},
        }
    ).body
    del upstream_body["messages"], upstream_body["tools"]
    assert upstream_body == {
        "model": "tiny",
        "top_p": 0.5,
        "stop": ["END"],
        "made_up": {"a": 1},
        "parallel_tool_calls": False,
        "max_completion_tokens": 9,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
        },
        "reasoning_effort": "low",
        "logprobs": True,
        "top_logprobs": 2,
    }


def test_fields_of_responses_only_are_not_sent_upstream() -> None:
    request = read(
        {
            "model": "tiny",
            "input": "x",
            "stream": True,
            "stream_options": {"include_obfuscation": False},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "k",
            "client_metadata": {"a": "b"},
            "metadata": {"m": "1"},
            "truncation": "auto",
            "text": {"format": {"type": "text"}},
            "reasoning": {"summary": "auto"},
            "safety_identifier": "s",
            "max_tool_calls": 3,
            "previous_response_id": None,
            "background": False,
            "n": 4,
            "messages": [{"role": "user", "content": "y"}],
        }
    )
    assert request.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "x"}],
    }
    assert request.stream
    assert request.n == 1
    result = echo(request)
    assert (result["truncation"], result["metadata"], result["max_tool_calls"]) == (
        "auto",
        {"m": "1"},
        3,
    )


def test_seed_and_temperature_are_in_the_request_and_the_answer() -> None:
    body = {"input": "x", "seed": 1, "temperature": 0}
    upstream_body = read(body).body
    assert (upstream_body["seed"], upstream_body["temperature"]) == (1, 0)
    assert echo(read(body))["temperature"] == 0.0


def test_sender_session_and_ids() -> None:
    request = read({"input": "x"}, session_id="s-1", x_request_id="my-id-1")
    assert (request.session, request.request_id) == ("s-1", "my-id-1")
    assert request.extra.response_id == "resp_my-id-1"
    other = read({"input": "x"}, session_id="s-2", x_request_id="my-id-1")
    assert request.key != other.key
    assert request.key == read({"input": "x"}, session_id="s-1").key
    assert read({"input": "x", "request_id": "resp_9"}).extra.response_id == "resp_9"
    assert len(read({"input": "x"}).extra.response_id) == len("resp_") + 16
