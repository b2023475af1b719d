"""Tool calls and live answers, as a client of chat completions reads them."""

import json
from typing import Any

import pytest

from proxy.dialects.chat.chunks import DONE
from tests.unit.proxy.dialects.forms import TOOLS, assembled, chat, events, made, writer

PARIS = {
    "id": "chatcmpl-tool-baec110f4ef59b1d",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"a": 1}'},
}
TWO = [PARIS, {**PARIS, "function": {"name": "g", "arguments": {"b": [1]}}}]


def test_parallel_calls_have_ids_of_their_own() -> None:
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [PARIS]},
        {"role": "tool", "content": "1", "tool_call_id": PARIS["id"]},
    ]
    request = chat(messages=history, tools=TOOLS, n=2)
    answers = [made({"tool_calls": [*TWO, {"function": {}}]}, "tool_calls")] * 2
    body = json.loads(writer(request).body(answers))
    ids = [call["id"] for one in body["choices"] for call in one["message"]["tool_calls"]]
    assert len({*ids, PARIS["id"]}) == 7
    assert all(name.startswith("chatcmpl-tool-") for name in ids)
    raw = writer(request).answer(answers)
    result = [call[0] for index in (0, 1) for call in assembled(raw, index)["calls"].values()]
    assert result == ids, "a request that is answered again gets the same ids"
    calls = list(assembled(raw)["calls"].values())
    assert [call[1:] for call in calls] == [
        ["get_weather", '{"a": 1}'],
        ["g", '{"b":[1]}'],
        ["", "{}"],
    ]


@pytest.mark.parametrize(
    ("fields", "result", "expected"),
    [
        ({}, "tool_calls", "tool_calls"),
        ({}, "stop", "tool_calls"),
        ({"tool_choice": "required"}, "tool_calls", "tool_calls"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_calls", "stop"),
        ({}, "length", "length"),
    ],
)
def test_the_finish_reason_depends_on_the_tool_choice(
    fields: dict[str, Any], result: str, expected: str
) -> None:
    one = writer(chat(tools=TOOLS, stream=True, **fields))
    answer = made({"tool_calls": [PARIS]}, result)
    assert json.loads(one.body([answer]))["choices"][0]["finish_reason"] == expected
    assert assembled(one.answer([answer]))["finish_reason"] == expected
    assert assembled(writer(chat()).answer([made({"content": "a"}, result)]))["finish_reason"] == (
        "length" if result == "length" else "stop"
    )


def test_only_one_call_is_sent_if_one_is_allowed() -> None:
    one = writer(chat(tools=TOOLS, parallel_tool_calls=False))
    answer = made({"tool_calls": TWO}, "tool_calls")
    assert len(json.loads(one.body([answer]))["choices"][0]["message"]["tool_calls"]) == 1
    assert len(assembled(one.answer([answer]))["calls"]) == 1


def test_calls_become_text_if_none_are_allowed() -> None:
    one = writer(chat(tools=TOOLS, tool_choice="none"))
    answer = made({"content": "Now:", "tool_calls": [PARIS]}, "tool_calls")
    (choice,) = json.loads(one.body([answer]))["choices"]
    assert choice["message"]["content"] == (
        'Now:\n<tool_call>\n{"name": "get_weather", "arguments": {"a": 1}}\n</tool_call>'
    )
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    live = writer(chat(tools=TOOLS, tool_choice="none"))
    raw = live.delta_events({"content": "Now:"})
    raw += live.delta_events({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f"}}]})
    raw += live.finish(answer)
    assert assembled(raw)["content"] == choice["message"]["content"]


# --- live answers --------------------------------------------------------------------------------


def test_deltas_are_forwarded_as_they_arrive() -> None:
    one = writer(chat(stream=True, tools=TOOLS, stream_options={"include_usage": True}))
    raw = one.opening() + one.delta_events({"role": "assistant", "content": ""})
    raw += (
        one.delta_events({"reasoning_content": "hm"})
        + one.keepalive()
        + one.delta_events({"content": "Hi"})
    )
    calls = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
        {"index": 0, "id": "a2", "function": {"name": "g", "arguments": ""}},
        {"index": 0, "id": "a2", "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]
    for call in calls:
        raw += one.delta_events({"tool_calls": [call]})
    result = [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "a2", "function": {"name": "g", "arguments": '{"a":1}'}},
    ]
    answer = made({"content": "Hi", "reasoning": "hm", "tool_calls": result}, "tool_calls")
    raw += one.finish(answer)
    actual = assembled(raw)
    assert actual["calls"] == {0: ["a", "f", "{}"], 1: ["a2", "g", '{"a":1}']}
    assert (actual["content"], actual["reasoning"]) == ("Hi", "hm")
    assert actual["finish_reason"] == "tool_calls"
    assert events(raw)[-1]["usage"]["completion_tokens"] == 23
    assert raw.count(DONE) == 1


def test_an_answer_without_deltas_is_sent_at_its_end() -> None:
    one = writer(chat(stream=True))
    assert assembled(one.finish(made({"content": "Hi"})))["content"] == "Hi"


def test_only_one_streamed_call_is_sent_if_one_is_allowed() -> None:
    one = writer(chat(tools=TOOLS, parallel_tool_calls=False))
    raw = b"".join(
        one.delta_events({"tool_calls": [{"index": at, "id": f"c{at}", "function": {"name": "f"}}]})
        for at in range(2)
    )
    assert list(assembled(raw)["calls"]) == [0]
