"""Anthropic Messages on the wire: the shapes a real vLLM was seen to send."""

import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.errors import ApiError
from core.dialects.request import PublicAnswer, public_answer
from core.dialects.writer import Writer
from proxy.dialects.messages import MESSAGES
from proxy.dialects.request import ChatRequest
from tests.unit.proxy.dialects import forms
from tests.unit.proxy.dialects.forms import BODIES, HELLO, deltas, read
from tests.unit.proxy.dialects.forms import named_events as events

pytestmark = pytest.mark.slow

USAGE = {"prompt_tokens": 42, "completion_tokens": 33, "total_tokens": 75}
made = partial(forms.made, usage=USAGE)
PARIS: dict[str, Any] = {
    "id": "chatcmpl-tool-809f74a49c555cbd",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}


def chat_request(messages: list[dict[str, Any]] | None = None, **more: Any) -> ChatRequest:
    body = {**BODIES["messages"], "messages": messages or HELLO, **more}
    return read("messages", body, x_request_id="1")


def writer() -> Writer:
    return MESSAGES.writer(chat_request(), "tiny", 5)


def gathered(stream_events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content an official client makes of a stream; asserts the order of events."""
    content: list[dict[str, Any]] = []
    parts: dict[int, str] = {}
    current = -1
    for event in stream_events:
        if event["type"] == "content_block_start":
            assert current == -1
            assert event["index"] == len(content)
            current = event["index"]
            content.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            assert event["index"] == current
            delta = event["delta"]
            field = {
                "text_delta": "text",
                "thinking_delta": "thinking",
                "input_json_delta": "partial_json",
                "signature_delta": "signature",
            }[delta["type"]]
            assert delta[field]
            if field == "partial_json":
                parts[current] = parts.get(current, "") + delta[field]
            elif field == "signature":
                content[current]["signature"] = delta[field]
            else:
                content[current][field] += delta[field]
        elif event["type"] == "content_block_stop":
            assert event["index"] == current
            current = -1
        else:
            assert current == -1 or event["type"] == "ping"
    for index, text in parts.items():
        content[index]["input"] = json.loads(text)
    return content


# --- whole ---------------------------------------------------------------------------------------


def test_an_answer_without_a_text_has_an_empty_one() -> None:
    empty = json.loads(writer().body([made({"content": None})]))
    assert empty["content"] == [{"type": "text", "text": ""}]


def test_cached_tokens_are_counted_as_anthropic_does() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 40}}
    choice = {"message": {"content": "a"}, "finish_reason": "stop"}
    answer = public_answer({"choices": [choice], "usage": {**USAGE, **details}})
    expected = {
        "input_tokens": 2,
        "output_tokens": 33,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 40,
    }
    assert json.loads(writer().body([answer]))["usage"] == expected
    assert events(writer().answer([answer]))[-2]["usage"] == expected


def test_reasons_to_stop() -> None:
    half = {**PARIS, "function": {"name": "f", "arguments": '{"city": "Pa'}}
    cases: list[tuple[PublicAnswer, str, str | None]] = [
        (made({"content": "a"}), "end_turn", None),
        (made({"content": "a"}, "length"), "max_tokens", None),
        (made({"content": "a"}, "content_filter"), "refusal", None),
        (made({"content": "a"}, "made_up"), "end_turn", None),
        (made({"content": "a"}, stop_reason="How"), "stop_sequence", "How"),
        (made({"content": "a"}, stop_reason=151645), "end_turn", None),
        (made({"content": "a"}, "tool_calls"), "end_turn", None),
        (made({"tool_calls": [PARIS]}, "tool_calls"), "tool_use", None),
        (made({"tool_calls": [PARIS]}, "stop"), "tool_use", None),
        (made({"tool_calls": [PARIS]}, "tool_calls", stop_reason="x"), "tool_use", None),
        (made({"tool_calls": [half]}, "tool_calls", stop_reason="x"), "stop_sequence", "x"),
        (made({"tool_calls": [half]}, "tool_calls"), "tool_use", None),
        (made({"tool_calls": [half]}, "length"), "max_tokens", None),
    ]
    for answer, reason, stop in cases:
        body = json.loads(writer().body([answer]))
        assert (body["stop_reason"], body.get("stop_sequence")) == (reason, stop)
        last = events(writer().answer([answer]))[-2]
        assert last["delta"] == {"stop_reason": reason, "stop_sequence": stop}


# --- streamed ------------------------------------------------------------------------------------


def test_a_stream_opens_at_once() -> None:
    raw = writer().opening()
    assert raw == (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"chatcmpl-1","type":'
        b'"message","role":"assistant","content":[],"model":"tiny","stop_reason":null,'
        b'"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}\n\n'
    )
    estimated = msgspec.structs.replace(chat_request(), extra=17)
    (start,) = events(MESSAGES.writer(estimated, "tiny", 5).opening())
    assert start["message"]["usage"] == {"input_tokens": 17, "output_tokens": 0}
    assert writer().keepalive() == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_arguments_that_are_no_object_are_sent_as_none() -> None:
    broken = {**PARIS, "id": "b", "function": {"name": "f", "arguments": "city=Paris"}}
    listed = {**PARIS, "id": "c", "function": {"name": "f", "arguments": "[1]"}}
    answer = made({"tool_calls": [broken, PARIS, listed]}, "tool_calls")
    whole = json.loads(writer().body([answer]))["content"]
    assert [one["input"] for one in whole] == [{}, {"city": "Paris"}, {}]
    assert gathered(events(writer().answer([answer]))) == whole


def test_deltas_are_forwarded_as_they_arrive() -> None:
    first = {"index": 0, "id": "a", "type": "function", "function": {"name": "f"}}
    second = {"index": 1, "id": "b", "function": {"name": "g", "arguments": '{"x"'}}
    live = writer()
    pieces: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        {"reasoning": "h"},
        {"reasoning_content": "m"},
        {"content": "Look"},
        {"content": None, "tool_calls": [first]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {"content": "held back"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {"tool_calls": [second]},
        {"tool_calls": [{"index": 1, "function": {"arguments": ":2}"}}]},
        {},
    ]
    raws = [live.delta_events(piece) for piece in pieces]
    assert raws[0] == raws[-1] == writer().keepalive()
    raw = b"".join(raws) + live.finish(made({"tool_calls": [PARIS]}, "tool_calls"))
    result = events(raw)
    content = gathered(result)
    assert len(content[0].pop("signature")) == 32
    assert content == [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Look"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "held back"},
        {"type": "tool_use", "id": "b", "name": "g", "input": {"x": 2}},
    ]
    assert [one["type"] for one in result[-2:]] == ["message_delta", "message_stop"]


def test_an_end_without_deltas_is_the_whole_answer() -> None:
    answer = made({"content": "Hello"})
    assert writer().finish(answer) == writer().answer([answer])


def test_calls_fit_the_request() -> None:
    other = {**PARIS, "function": {"name": "g", "arguments": "{}"}}  # with the same id
    answer = made({"content": "See:", "tool_calls": [PARIS, other]}, "tool_calls")
    tools = [{"name": "f", "input_schema": {}}]
    for choice, count in ((None, 2), ({"type": "auto", "disable_parallel_tool_use": True}, 1)):
        request = chat_request(tools=tools, tool_choice=choice)
        content = json.loads(MESSAGES.writer(request, "m", 5).body([answer]))["content"]
        assert len({one["id"] for one in content[1:]}) == len(content) - 1 == count
        assert gathered(events(MESSAGES.writer(request, "m", 5).answer([answer]))) == content
        live = MESSAGES.writer(request, "m", 5)
        raw = b"".join(live.delta_events(delta) for delta in deltas(answer)) + live.finish(answer)
        assert gathered(events(raw)) == content
    none = chat_request(tools=tools, tool_choice={"type": "none"})
    (text,) = json.loads(MESSAGES.writer(none, "m", 5).body([answer]))["content"]
    live = MESSAGES.writer(none, "m", 5)
    raw = b"".join(live.delta_events(delta) for delta in deltas(answer)) + live.finish(answer)
    assert gathered(events(raw)) == [text]
    assert text["text"].startswith("See:\n<tool_call>")
    assert events(raw)[-2]["delta"]["stop_reason"] == "end_turn"


def test_an_error_ends_a_stream() -> None:
    """`event: error` must be there: without it the official client shows an empty answer."""
    live = writer()
    begun = live.delta_events({"content": "Hel"})
    raw = live.error(ApiError(503, 2, "later"))
    assert raw == (
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
        b'"message":"later"}}\n\n'
    )
    assert [event["type"] for event in events(begun + raw)][-1] == "error"
    assert writer().error(ApiError(500, None, "no")).startswith(b"event: error\n")


# --- both ----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ARGUMENTS = st.dictionaries(TEXT, TEXT | st.integers(-9, 9) | st.none(), max_size=3)
CALLS = st.lists(
    st.builds(lambda name, args: {"name": name, "arguments": json.dumps(args)}, TEXT, ARGUMENTS),
    max_size=3,
)


@given(TEXT, TEXT, CALLS)
def test_streamed_whole_and_sent_back_agree(
    text: str, thought: str, functions: list[dict[str, Any]]
) -> None:
    calls: list[dict[str, Any]] = [
        {"id": f"c{n}", "function": function} for n, function in enumerate(functions)
    ]
    answer = made({"content": text, "reasoning": thought, "tool_calls": calls}, "stop")
    whole = json.loads(writer().body([answer]))["content"]
    result = events(writer().answer([answer]))
    assert gathered(result) == (whole if text or thought or calls else [])
    assert [one["type"] for one in result[-2:]] == ["message_delta", "message_stop"]
    live = writer()
    raw = b"".join(live.delta_events(delta) for delta in deltas(answer)) + live.finish(answer)
    assert gathered(events(raw)) == gathered(result)

    back = chat_request([{"role": "assistant", "content": whole}]).messages[0]
    assert back["content"] == text
    assert back.get("reasoning", "") == thought
    sent = [one["function"] | {"id": one["id"]} for one in back.get("tool_calls", [])]
    assert [(one["id"], one["name"]) for one in sent] == [
        (call["id"], call["function"]["name"]) for call in calls
    ]
    assert [json.loads(one["arguments"]) for one in sent] == [
        json.loads(function["arguments"]) for function in functions
    ]


@given(
    st.lists(
        st.one_of(
            st.builds(lambda t: {"content": t}, TEXT),
            st.builds(lambda t: {"reasoning": t}, TEXT),
            st.builds(
                lambda n, i, a: {
                    "tool_calls": [{"index": n, "id": i, "function": {"name": "f", "arguments": a}}]
                },
                st.integers(0, 3),
                st.none() | st.just("id"),
                st.sampled_from(["", "{", "}"]),
            ),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_order_of_deltas_gives_valid_events(pieces: list[dict[str, Any]]) -> None:
    live = writer()
    raw = b"".join(live.delta_events(piece) for piece in pieces)
    result = events(live.opening() + raw + live.finish(made({"content": None})))
    kinds = [one["type"] for one in result]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    for one in result:
        if one.get("delta", {}).get("type") == "input_json_delta":
            one["delta"]["partial_json"] = "{}"  # only the order is asked here
    starts = [one for one in result if one["type"] == "content_block_start"]
    order = [one for one in result if one.get("delta", {}).get("type") != "input_json_delta"]
    blocks = gathered(order)
    assert len(blocks) == len(starts)
    texts = "".join(block.get("text", "") for block in blocks)
    assert texts == "".join(piece.get("content", "") for piece in pieces)
