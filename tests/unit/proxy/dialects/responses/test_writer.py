"""Responses on the wire: the shapes a real vLLM was seen to send."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.errors import ApiError
from core.dialects.request import PublicAnswer, public_answer
from core.dialects.responses.input import ResponseStore
from core.dialects.writer import Writer
from proxy.dialects.responses import responses
from proxy.http.errors import EngineOffline, ProxyStopping, overloaded
from tests.unit.proxy.dialects.forms import deltas, named_events

RESPONSES = responses(ResponseStore())
USAGE = {
    "prompt_tokens": 42,
    "completion_tokens": 33,
    "completion_tokens_details": {"reasoning_tokens": 7},
    "prompt_tokens_details": {"cached_tokens": 16},
}
TOOLS = [
    {"type": "function", "name": "get_weather", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch"},
    {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
]


def made(finish: str = "stop", logprobs: Any = None, **message: Any) -> PublicAnswer:
    choice = {"message": message, "finish_reason": finish, "logprobs": logprobs}
    return public_answer({"choices": [choice], "usage": USAGE})


def called(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def writer(**more: Any) -> Writer:
    body = json.dumps({"model": "tiny", "input": "x", **more}).encode()
    request = RESPONSES.read(body, {"content-type": "application/json"}, "")
    return RESPONSES.writer(request, "tiny", 1795148466)


def events(raw: bytes) -> list[dict[str, Any]]:
    result = named_events(raw)
    assert [event["sequence_number"] for event in result] == list(range(len(result)))
    return result


def streamed(one: PublicAnswer, **more: Any) -> list[dict[str, Any]]:
    result = writer(**more)
    return events(result.opening() + result.answer([one]))


def live(one: PublicAnswer, **more: Any) -> list[dict[str, Any]]:
    result = writer(**more)
    raw = result.opening() + b"".join(result.delta_events(delta) for delta in deltas(one))
    return events(raw + result.finish(one))


def whole(one: PublicAnswer, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(writer(**more).body([one]))
    return body


FULL: dict[str, Any] = {
    "reasoning": "\nI need the tool.\n",
    "content": "\n\n",
    "tool_calls": [called("get_weather", '{"city": "Paris"}')],
}


# --- shapes -------------------------------------------------------------------------------------


def test_the_response_is_in_progress_then_completed_with_output_and_usage() -> None:
    result = streamed(made(**FULL), tools=TOOLS[:1], max_output_tokens=9)
    first, last = result[0]["response"], result[-1]["response"]
    assert (first["status"], first["usage"], first["output"]) == ("in_progress", None, [])
    assert {event["response"]["id"] for event in result if "response" in event} == {first["id"]}
    done = [event["item"] for event in result if event["type"] == "response.output_item.done"]
    assert last["output"] == done
    assert [item["status"] for item in done] == ["completed"] * 3
    assert (last["status"], last["max_output_tokens"]) == ("completed", 9)
    assert last["usage"] == {
        "input_tokens": 42,
        "input_tokens_details": {
            "cached_tokens": 16,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": 33,
        "output_tokens_details": {
            "reasoning_tokens": 7,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": 75,
    }


def test_streamed_and_whole_responses_are_equal() -> None:
    one = made(**FULL)
    for body in (whole(one, tools=TOOLS), streamed(one, tools=TOOLS)[-1]["response"]):
        texts = [item.get("content") or item["arguments"] for item in body["output"]]
        assert texts[0][0]["text"] == FULL["reasoning"]
        assert texts[1][0]["text"] == FULL["content"]
        assert texts[2] == '{"city": "Paris"}'


def test_a_truncated_answer_is_incomplete() -> None:
    result = streamed(made("length", content="Once upon"))
    assert result[-1]["type"] == "response.completed"
    response = result[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_an_empty_answer() -> None:
    assert whole(made())["output"] == []
    assert [event["type"] for event in streamed(made())][2:] == ["response.completed"]


def test_a_keepalive_repeats_that_the_response_is_in_progress() -> None:
    result = writer()
    raw = (
        result.opening()
        + result.keepalive()
        + result.keepalive()
        + result.answer([made(content="x")])
    )
    kinds = [event["type"] for event in events(raw)]
    assert kinds[:4] == ["response.created", *["response.in_progress"] * 3]


# --- calls --------------------------------------------------------------------------------------


def test_parallel_calls_are_items_of_their_own() -> None:
    calls = [called("get_weather", '{"city": "Paris"}'), called("spawn", "{}", "c2")]
    result = live(made("tool_calls", tool_calls=calls), tools=TOOLS)
    added = [event for event in result if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1]
    assert [event["item"]["call_id"] for event in added] == ["c1", "c2"]
    assert len({event["item"]["id"] for event in added}) == 2


def test_live_calls_without_arguments_have_an_empty_object() -> None:
    one = made("tool_calls", content=None, tool_calls=[called("f", "{}"), called("g", "{}", "c2")])
    result = writer()
    heads = [delta for delta in deltas(one) if "id" in delta["tool_calls"][0]]
    late = [{"tool_calls": [{"index": n, "function": {"arguments": "{}"}}]} for n in range(2)]
    raw = b"".join(result.delta_events(delta) for delta in [*heads, *late]) + result.finish(one)
    response = events(raw)[-1]["response"]
    assert [(item["name"], item["arguments"]) for item in response["output"]] == [
        ("f", "{}"),
        ("g", "{}"),
    ]


def test_a_call_in_a_namespace_has_both_names() -> None:
    (item,) = whole(made(tool_calls=[called("agents__spawn", "{}")]), tools=TOOLS)["output"]
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "spawn", "agents")


@pytest.mark.parametrize("tell", [streamed, live])
def test_a_custom_tool_is_called_with_its_text(tell: Callable[..., list[dict[str, Any]]]) -> None:
    text = '*** Begin Patch "é"\n' * 20
    call = called("apply_patch", json.dumps({"input": text}))
    result = tell(made(tool_calls=[call]), tools=TOOLS)
    (item,) = result[-1]["response"]["output"]
    assert (item["type"], item["input"], item["call_id"]) == ("custom_tool_call", text, "c1")
    name = "response.custom_tool_call_input.delta"
    assert [event["delta"] for event in result if event["type"] == name] == [text]
    (done,) = [e for e in result if e["type"] == "response.custom_tool_call_input.done"]
    assert done["input"] == text
    assert [event["type"] for event in result].count("response.in_progress") == 1


# --- logprobs -----------------------------------------------------------------------------------


def test_logprobs_are_sent_on_request() -> None:
    top = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
    logprobs = {"content": [{**top, "top_logprobs": [top]}]}
    one = made(logprobs=logprobs, content="Hi")
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    (item,) = whole(one, **fields)["output"]
    assert item["content"][0]["logprobs"] == [{**top, "top_logprobs": [top]}]
    short = {"token": "Hi", "logprob": -0.5}
    for value in (streamed(one, **fields), live(one, **fields)):
        (done,) = [event for event in value if event["type"] == "response.output_text.done"]
        assert done["logprobs"] == [{**short, "top_logprobs": [short]}]
        assert value[-1]["response"]["output"] == [{**item, "id": done["item_id"]}]
    assert whole(one)["output"][0]["content"][0]["logprobs"] is None


@pytest.mark.parametrize("reasoning", [None, "Let me think."])
def test_each_delta_has_the_logprobs_of_its_own_tokens(reasoning: str | None) -> None:
    words = [f"word{at} " for at in range(12)]
    thought = [reasoning, "</think>"] if reasoning else []
    entries = [
        {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}
        for text in (*thought, *words, "<end>")
    ]
    one = made(logprobs={"content": entries}, content="".join(words), reasoning=reasoning)
    result = streamed(one, include=["message.output_text.logprobs"])
    (delta,) = [event for event in result if event["type"] == "response.output_text.delta"]
    tokens = [entry["token"] for entry in delta["logprobs"] if entry["token"] in words]
    assert "".join(tokens) == delta["delta"]
    assert all("logprobs" not in event for event in result if "reasoning_text" in event["type"])


def test_logprobs_of_other_texts_come_with_the_first_delta() -> None:
    entry = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}
    one = made(logprobs={"content": [entry]}, content="something else, and a little longer")
    result = streamed(one, include=["message.output_text.logprobs"])
    actual = [
        len(event["logprobs"]) for event in result if event["type"] == "response.output_text.delta"
    ]
    assert actual == [1, *[0] * (len(actual) - 1)]


def test_logprobs_are_empty_unless_requested() -> None:
    entry = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    result = streamed(made(logprobs={"content": [entry]}, content="Hi"))
    actual = [
        event["logprobs"] for event in result if event["type"].startswith("response.output_t")
    ]
    assert actual == [[], []]


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "code", "message"),
    [
        (overloaded(7, "Busy."), "rate_limit_exceeded", "Busy. Please try again in 7s."),
        (EngineOffline("The engine"), "server_error", EngineOffline("The engine").message),
        (ProxyStopping(), "server_error", "The server is shutting down. Please try again later."),
        (ApiError(502, None, "All failed."), "server_error", "All failed."),
        (ApiError(400, None, "No."), "invalid_prompt", "No."),
        (
            ApiError(400, None, "This model's maximum context length is 4096 tokens."),
            "context_length_exceeded",
            "This model's maximum context length is 4096 tokens.",
        ),
    ],
)
def test_an_error_ends_the_stream(refusal: ApiError, code: str, message: str) -> None:
    result = writer()
    raw = result.opening() + result.delta_events({"content": "half"}) + result.error(refusal)
    last = events(raw)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": code, "message": message}


# --- any answer ---------------------------------------------------------------------------------

texts = st.text(max_size=200)
calls = st.lists(
    st.builds(called, st.sampled_from(["get_weather", "apply_patch", "agents__spawn"]), texts)
).map(lambda calls: [{**call, "id": f"c{number}"} for number, call in enumerate(calls)])


@pytest.mark.slow
@given(texts, texts, calls, st.booleans())
def test_deltas_add_up_to_the_text_of_the_done_event(
    content: str, reasoning: str, tool_calls: list[dict[str, Any]], at_once: bool
) -> None:
    one = made(content=content, reasoning=reasoning, tool_calls=tool_calls)
    result = (streamed if at_once else live)(one, tools=TOOLS)
    values: dict[str, str] = {}
    for event in result:
        if event["type"].endswith(".delta"):
            values[event["item_id"]] = values.get(event["item_id"], "") + event["delta"]
        for key in ("text", "arguments", "input"):
            if key in event and event["type"].endswith(".done"):
                assert values.get(event["item_id"], "") == event[key]
    output = result[-1]["response"]["output"]
    assert [item["call_id"] for item in output if "call_id" in item] == [
        call["id"] for call in one.tool_calls
    ]
    assert "".join(part["text"] for item in output for part in item.get("content") or ()) == (
        (one.reasoning or "") + (one.content or "")
    )


@pytest.mark.slow
@given(texts, texts, calls)
def test_an_output_sent_back_becomes_the_original_message(
    content: str, reasoning: str, tool_calls: list[dict[str, Any]]
) -> None:
    plain = [call for call in tool_calls if call["function"]["name"] != "apply_patch"]
    one = made(content=content, reasoning=reasoning, tool_calls=plain)
    output = streamed(one, tools=TOOLS)[-1]["response"]["output"]
    values: dict[str, Any] = {"role": "assistant", "content": one.content}
    if one.reasoning:
        values["reasoning"] = one.reasoning
    if one.tool_calls:
        values["tool_calls"] = one.tool_calls
    values["content"] = one.content or (None if one.tool_calls else "")
    references = [{"type": "item_reference", "id": item["id"]} for item in output]
    for items in (output, references):
        body = json.dumps({"input": [{"role": "user", "content": "x"}, *items], "tools": TOOLS})
        request = RESPONSES.read(body.encode(), {"content-type": "application/json"}, "")
        assert request.messages[1:] == ([values] if output else [])
