"""The shared form: how a completion is read, and its deltas."""

from typing import Any

from core.dialects.request import text_deltas, usage_of, valid_text
from core.dialects.writer import apply_tool_choice
from tests.unit.proxy.dialects.forms import TOOLS, chat, made


def test_a_public_answer_is_read_from_any_upstreams_completion() -> None:
    one = made({"content": [{"type": "text", "text": "a"}], "reasoning_content": "b"})
    assert (one.content, one.reasoning) == ("a", "b")
    assert one.usage == {
        "prompt_tokens": 17,
        "total_tokens": 40,
        "completion_tokens": 23,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    plain = made({"content": ""}, usage=None)
    assert plain.content is None
    assert plain.usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert (plain.usage["prompt_tokens"], plain.finish_reason) == (0, "stop")
    assert made({"content": "\ud83d\ude00\ud83d"}).content == "\U0001f600\ufffd"


def test_call_ids_are_stable_and_unique() -> None:
    calls: list[Any] = [
        {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "a", "function": {"name": "f", "arguments": ""}},
        {"function": None},
        "no call",
    ]
    request = chat(tools=TOOLS)
    (one,) = apply_tool_choice([made({"tool_calls": calls})], request)
    (again,) = apply_tool_choice([made({"tool_calls": calls})], request)
    ids = [call["id"] for call in one.tool_calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
    assert ids == [call["id"] for call in again.tool_calls]
    result = [call["function"]["arguments"] for call in one.tool_calls]
    assert result == ['{"x":1}', "{}", "{}"]


def test_usage_of_several_choices() -> None:
    counted = {"prompt_tokens": 5, "completion_tokens": 3}
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    some = [made({"content": "a", "reasoning": "b"}, usage={**counted, **details})] * 3
    result = usage_of(some)
    assert (result["prompt_tokens"], result["completion_tokens"], result["total_tokens"]) == (
        5,
        9,
        14,
    )
    assert result["completion_tokens_details"] == {"reasoning_tokens": 6}
    unknown = made({"content": "a", "reasoning": "b"}, usage=counted)
    assert usage_of([*some, unknown])["completion_tokens_details"] is None
    assert usage_of([])["total_tokens"] == 0


def test_the_deltas_of_the_texts() -> None:
    one = made({"content": "a", "reasoning": "b"})
    assert text_deltas(one) == [{"reasoning": "b"}, {"content": "a"}]
    assert valid_text("a\ud800") == "a\ufffd"
