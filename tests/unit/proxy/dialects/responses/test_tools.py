"""Tools of a Responses request: in the upstream's request and in the response."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.request import ChatRequest
from proxy.dialects.responses.request import RESPONSES
from proxy.dialects.responses.tools import custom_arguments, custom_input
from proxy.http.errors import ApiError

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def read(body: Any) -> ChatRequest:
    return RESPONSES.read(json.dumps(body).encode(), {"content-type": "application/json"}, "")


def echoed_tools(request: ChatRequest) -> Any:
    return json.loads(bytes(request.extra.echo["tools"]))


CODEX_TOOLS: list[Any] = [
    {**WEATHER, "strict": False, "description": "Weather."},
    {"type": "custom", "name": "apply_patch", "description": "Edits files."}
    | {"format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
    {"type": "namespace", "name": "multi_agent_v1", "description": "Agents."}
    | {"tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}]},
    {"type": "web_search", "external_web_access": False},
    {"type": "local_shell"},
    {"type": "made_up"},
]


def test_codex_tools_are_accepted() -> None:
    request = read({"input": "x", "tools": CODEX_TOOLS, "tool_choice": "auto"})
    weather, patch, spawn = request.body["tools"]
    assert weather["function"] == {
        "name": "get_weather",
        "description": "Weather.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert patch["function"]["parameters"]["required"] == ["input"]
    assert "start: x" in patch["function"]["parameters"]["properties"]["input"]["description"]
    assert spawn["function"]["name"] == "multi_agent_v1__spawn"
    assert request.body["tool_choice"] == "auto"
    assert [tool["type"] for tool in echoed_tools(request)] == [t["type"] for t in CODEX_TOOLS]


def test_a_tool_is_repeated_with_all_its_keys_in_vllms_order() -> None:
    (result,) = echoed_tools(read({"input": "x", "tools": [WEATHER]}))
    assert list(result) == [
        "name",
        "parameters",
        "strict",
        "type",
        "allowed_callers",
        "async",
        "defer_loading",
        "description",
        "output_schema",
    ]


def test_a_call_in_a_namespace_has_the_flat_name_upstream() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "spawn", "arguments": "{}"}
    (turn,) = read({"input": [{**call, "namespace": "multi_agent_v1"}]}).messages
    assert turn["tool_calls"][0]["function"]["name"] == "multi_agent_v1__spawn"


@pytest.mark.parametrize(
    ("choice", "result"),
    [
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "get_weather"}, "get_weather"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "function", "name": "spawn"}, "multi_agent_v1__spawn"),
        (
            {"type": "function", "name": "spawn", "namespace": "multi_agent_v1"},
            "multi_agent_v1__spawn",
        ),
        ({"type": "web_search"}, None),
        (None, None),
    ],
)
def test_tool_choices_are_converted(choice: Any, result: str | None) -> None:
    upstream_body = read({"input": "x", "tools": CODEX_TOOLS, "tool_choice": choice}).body
    if isinstance(choice, str) or result is None:
        assert upstream_body.get("tool_choice") == result
    else:
        assert upstream_body["tool_choice"] == {"type": "function", "function": {"name": result}}


def test_allowed_tools_remove_the_others() -> None:
    only = {"type": "function", "name": "apply_patch"}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [only, {"type": "mcp"}]}
    upstream_body = read({"input": "x", "tools": CODEX_TOOLS, "tool_choice": choice}).body
    assert [tool["function"]["name"] for tool in upstream_body["tools"]] == ["apply_patch"]
    assert upstream_body["tool_choice"] == "required"


def test_tools_that_run_elsewhere_are_not_sent_upstream() -> None:
    more = {"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True}
    upstream_body = read({"input": "x", **more}).body
    assert set(upstream_body) == {"messages"}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": {}},
        {"tools": [1]},
        {"tools": [{}]},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "namespace", "name": "n", "tools": [1]}]},
        {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "other"}},
        {"tools": [WEATHER], "tool_choice": "other"},
        {"tools": [WEATHER], "tool_choice": 5},
        {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": 1}},
    ],
)
def test_invalid_tools_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        read({"input": "x", **more})
    no = caught.value
    assert no.status == 400
    assert (no.param or "").removeprefix("body.").startswith("tool")


@pytest.mark.slow
@given(st.text())
def test_the_text_of_a_custom_call_comes_back(text: str) -> None:
    assert custom_input(custom_arguments(text)) == text


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '{"input": 5}', "*** Begin Patch"])
def test_arguments_that_hold_no_input_are_the_text(arguments: str) -> None:
    assert custom_input(arguments) == arguments
