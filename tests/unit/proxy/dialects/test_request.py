"""The shared form: how a completion is read, and how its text is cut."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.request import (
    MOST_PIECES,
    deltas,
    pieces,
    public_answer,
    same_character,
    usage_of,
    valid_text,
)
from tests.unit.proxy.dialects.forms import QUICK, made

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1eb\U0001f1f7"
WAVE = "\U0001f44b\U0001f3fd"


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


def test_call_ids_are_stable() -> None:
    calls: list[Any] = [
        {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "a", "function": {"name": "f", "arguments": ""}},
        {"function": None},
        "no call",
    ]
    one, again = made({"tool_calls": calls}), made({"tool_calls": calls})
    ids = [call["id"] for call in one.tool_calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
    assert ids == [call["id"] for call in again.tool_calls]
    result = [call["function"]["arguments"] for call in one.tool_calls]
    assert result == ['{"x":1}', "{}", "{}"]
    nameless = {"choices": [{"message": {"tool_calls": calls}}]}
    assert (
        public_answer(nameless).tool_calls[1]["id"] != public_answer(nameless).tool_calls[1]["id"]
    )


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


@pytest.mark.slow
@QUICK
@given(st.text(max_size=400) | st.text("a\u0301\u200d\U0001f3fd\U0001f1eb\r\n ", max_size=100))
def test_pieces_make_up_the_text(text: str) -> None:
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert all(cut)
    assert len(cut) <= MOST_PIECES
    assert not any(same_character(a[-1], b[0]) for a, b in pairwise(cut))


@pytest.mark.parametrize("sign", [FAMILY, FLAG, WAVE, "e\u0301", "\r\n", "\u0e01\u0e33\u0e48"])
def test_displayed_characters_stay_whole(sign: str) -> None:
    for lead in range(17):
        text = "x" * lead + sign * 40
        for piece in pieces(text):
            assert piece.replace("x", "").replace(sign, "") == ""


def test_deltas_add_up_to_the_texts() -> None:
    one = made({"content": "a", "reasoning": "b"})
    assert list(deltas(one)) == [{"reasoning": "b"}, {"content": "a"}]
    assert valid_text("a\ud800") == "a\ufffd"
