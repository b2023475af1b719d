"""Pieces of an answer that may become a tool call."""

import pytest

from engine.interface import Prompt, SamplingParams, ToolCall
from engine.policy.answer import LiveAnswer, ParsedAnswer, Request

END = -1


def streamed(
    text: str, parsed: ParsedAnswer | None = None, **fields: tuple[str, ...]
) -> tuple[list[str], str]:
    """The pieces and the text of an answer that is sampled letter by letter."""
    request = Request(Prompt((1,)), SamplingParams(), on_text=print)
    answer = LiveAnswer(request, 10_000, chr, frozenset({END}), **fields)
    pieces = [answer.append(ord(letter), 0.0) for letter in text] + [answer.append(END, 0.0)]
    completion, last = answer.completed(0, parsed)
    return [piece for piece in (*pieces, last) if piece], completion.text


CALL = (ToolCall("a", "{}"),)


@pytest.mark.parametrize("text", ['{"name": "a"}', '\n {"name": "a"}', "<tag>{}", " <tag>x"])
def test_a_call_at_the_beginning_has_no_pieces(text: str) -> None:
    pieces, whole = streamed(text, ParsedAnswer("", CALL), openings=("{", "<tag>"))
    assert (pieces, whole) == ([], "")


@pytest.mark.parametrize("text", ['{"name": 1}', " <ta", "<tag", "{", "  "])
def test_what_looked_like_a_call_is_text_at_the_end(text: str) -> None:
    assert streamed(text, openings=("{", "<tag>")) == ([text], text)


def test_an_opening_in_the_middle_is_text() -> None:
    pieces, whole = streamed("a {b} <tag>", openings=("{", "<tag>"))
    assert "".join(pieces) == whole == "a {b} <tag>"
    assert len(pieces) > 5


def test_blanks_before_a_marker_are_held_back() -> None:
    text = "\n I look. \n\n[CALL] x"
    pieces, whole = streamed(text, ParsedAnswer("\n I look.", CALL), markers=("[CALL]",))
    assert "".join(pieces) == whole == "\n I look."
    pieces, whole = streamed(text, markers=("[CALL]",))
    assert "".join(pieces) == whole == text


def test_an_answer_without_tools_is_passed_on_at_once() -> None:
    assert streamed(" {a \n") == ([" ", "{", "a", " ", "\n"], " {a \n")
