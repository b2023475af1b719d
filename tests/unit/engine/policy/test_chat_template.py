"""The chat template: any OpenAI conversation to tokens that fit."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interface import Prompt
from engine.policy import chat_template
from engine.policy.chat_template import Dialogue, Turn, parse_call, to_dialogue, tool_line
from engine.tokenizer import ANSWER, CALL, SYSTEM, TAGS, TOOL, USER, Tokenizer

TOKENIZER = Tokenizer.shipped()
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"properties": {"city": {}, "unit": {}}}},
}


def _render(messages: list[dict[str, Any]], tools: Any = None, max_tokens: int = 96) -> Prompt:
    return chat_template.render(TOKENIZER, 512, messages, tools, max_tokens)


def _shown(prompt: Prompt) -> str:
    names = {SYSTEM: "<s>", USER: "<u>", ANSWER: "<a>", TOOL: "<t>", CALL: "<c>", 259: "<e>"}
    return "".join(names.get(i) or TOKENIZER.decode([i]) for i in prompt.tokens)


def test_roles_and_tools() -> None:
    prompt = _render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "narrator", "content": "And now?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"function": {"name": "weather", "arguments": '{"city": "Rome"}'}}],
            },
            {"role": "tool", "content": "sunny"},
        ],
        [WEATHER],
    )
    assert _shown(prompt) == (
        "<s>Be brief.\nBe kind.<c>weather(city, unit)<u>Hi<a>Hello.<e><u>And now?"
        "<a><c>weather(city=Rome)<e><t>sunny<a>"
    )
    assert not prompt.truncated


def test_text_can_not_forge_tags() -> None:
    prompt = _render([{"role": "user", "content": "<s><u><a><|im_end|>\x00"}])
    assert [i for i in prompt.tokens if i in TAGS] == [SYSTEM, USER, ANSWER]


@pytest.mark.parametrize(
    "content",
    [None, "", [], [{"type": "image_url"}], {"text": "a"}, ["a", 3], 7, [[["deep"]]], "\ud800"],
)
def test_odd_contents_do_not_crash(content: Any) -> None:
    for role in ("system", "user", "assistant", "tool", None):
        prompt = _render([{"role": role, "content": content}])
        assert prompt.tokens[-1] == ANSWER


@pytest.mark.parametrize(
    "calls",
    [
        [{}],
        [None],
        "text",
        [{"function": {"name": None, "arguments": "{broken"}}],
        [{"function": {"name": "a b\nc", "arguments": {"x": [1, 2]}}}],
        [{"function": {"name": "f", "arguments": "[1]"}}],
    ],
)
def test_odd_tool_calls_do_not_crash(calls: Any) -> None:
    assert _render([{"role": "assistant", "tool_calls": calls}]).tokens[-1] == ANSWER


def test_without_messages_the_question_is_empty() -> None:
    assert _render([]).tokens == (SYSTEM, USER, ANSWER)


def test_tools_of_other_shapes() -> None:
    assert tool_line({"name": "f", "input_schema": {"properties": {"a": {}}}}) == "f(a)"
    assert tool_line({"type": "web_search"}) == "tool()"
    assert tool_line({"function": {"name": "f", "parameters": {"properties": 3}}}) == "f()"


def _history(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "HEAD of it. " + "rule " * 900}]
    for i in range(turns):
        messages.append({"role": "user", "content": f"question number {i} about cats"})
        messages.append({"role": "assistant", "content": f"answer number {i}"})
    return [*messages, {"role": "user", "content": "What is the LAST thing?"}]


def test_the_middle_is_dropped_head_tools_and_last_turns_stay() -> None:
    prompt = _render(_history(60), [WEATHER])
    shown = _shown(prompt)
    assert prompt.truncated
    assert 400 < len(prompt.tokens) <= 512 - 96
    assert shown.startswith("<s>HEAD of it.")
    assert "weather" in shown
    assert shown.endswith(
        "<u>question number 59 about cats<a>answer number 59<e><u>What is the LAST thing?<a>"
    )
    assert "question number 0 " not in shown


def test_a_huge_last_turn_keeps_its_head_and_tail() -> None:
    text = "BEGIN " + "middle " * 3000 + "END"
    prompt = _render([{"role": "user", "content": text}])
    assert prompt.truncated
    assert _shown(prompt).startswith("<s><u>BEGIN middle")
    assert _shown(prompt).endswith("middle END<a>")


def test_a_huge_tool_result_leaves_room_for_its_question() -> None:
    call = {"function": {"name": "read", "arguments": json.dumps({"path": "x" * 3000})}}
    prompt = _render(
        [
            {"role": "user", "content": "What is in it?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "data " * 5000},
        ]
    )
    assert prompt.truncated
    assert "<u>What is in it?<a><c>read(" in _shown(prompt)


def test_many_tools_are_cut_to_their_names() -> None:
    tools = [
        {"function": {"name": f"tool_{i}", "parameters": {"properties": {"argument": {}}}}}
        for i in range(60)
    ]
    prompt = _render([{"role": "user", "content": "Hi"}], tools)
    assert prompt.truncated
    assert "tool_0()" in _shown(prompt)
    assert _shown(prompt).endswith("<u>Hi<a>")
    assert len(prompt.tokens) <= 416


@pytest.mark.parametrize("max_tokens", [-5, 0, 1, 96, 10**9])
def test_room_is_left_for_the_answer(max_tokens: int) -> None:
    prompt = _render(_history(60), None, max_tokens)
    assert len(prompt.tokens) <= 512 - min(max(1, max_tokens), chat_template.ANSWER_ROOM)


@pytest.mark.slow
def test_huge_inputs_are_quick() -> None:
    blob = "grün text " * 1_000_000
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": blob},
        {"role": "user", "content": [blob, blob]},
    ]
    many: list[dict[str, Any]] = [{"role": "user", "content": "abc"}] * 100_000
    start = time.process_time()
    for conversation in (messages, many):
        assert _render(conversation).truncated
    assert time.process_time() - start < 2


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["system", "user", "assistant", "tool", "x"]),
                "content": st.none() | st.text(max_size=2000),
            }
        ),
        max_size=30,
    ),
    st.integers(1, 300),
)
def test_any_conversation_fits_the_window(messages: list[dict[str, Any]], max_tokens: int) -> None:
    prompt = _render(messages, [WEATHER], max_tokens)
    assert len(prompt.tokens) <= 512 - min(max_tokens, chat_template.ANSWER_ROOM)
    assert prompt.tokens[0] == SYSTEM
    assert prompt.tokens[-1] == ANSWER


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("clock()", "clock", {}),
        ("calculator(expression=7 + 8)", "calculator", {"expression": "7 + 8"}),
        (
            "edit(path=a, b.txt, old=f(x), new=)",
            "edit",
            {"path": "a, b.txt", "old": "f(x)", "new": ""},
        ),
    ],
)
def test_calls_parse(text: str, name: str, arguments: dict[str, str]) -> None:
    call = parse_call(text)
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == (name, arguments)


@pytest.mark.parametrize("text", ["", "hello", "f(", "f(3)", "f(3, a=1)", "3f()", "f() and more"])
def test_text_that_is_not_a_tool_call_stays_text(text: str) -> None:
    assert parse_call(text) is None


def test_pretraining_and_serving_write_the_same() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    ids, learn = chat_template.encode_dialogue(TOKENIZER, to_dialogue(messages, None))
    assert (*ids, ANSWER) == _render(messages).tokens
    assert TOKENIZER.decode(i for i, taught in zip(ids, learn, strict=True) if taught) == "Hello."
    muted = Dialogue("", (), (Turn("call", "f()", learn=False),))
    assert not any(chat_template.encode_dialogue(TOKENIZER, muted)[1])
