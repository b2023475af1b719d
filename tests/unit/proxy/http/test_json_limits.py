"""Bodies of very many small things are refused before they hold everybody else up."""

import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from core.dialects.errors import ApiError
from core.dialects.validation import MOST_STOPS
from proxy.admission.sessions import Conversations
from proxy.dialects.chat.completions import COMPLETIONS, MOST_PROMPTS
from proxy.dialects.chat.request import chat_dialect
from proxy.dialects.client_marks import MOST_ASIDES, own_words
from proxy.dialects.messages import MESSAGES
from proxy.dialects.request import MOST_FIELDS, MOST_VALUES, Dialect, check_values, has_more_values
from proxy.dialects.responses import RESPONSES

pytestmark = pytest.mark.slow

CHAT = chat_dialect("reasoning")
JSON = {"content-type": "application/json"}
MakeBody = Callable[[], bytes]
"""Large bodies are made by the test that sends them: each worker collects all tests."""
SAID: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def handled(dialect: Dialect, data: bytes) -> str:
    """Read a body, find its conversation; what it is answered with, if it is refused."""
    try:
        request = dialect.read(data, JSON, "here")
    except ApiError as refusal:
        return dialect.refusal(refusal).decode()
    Conversations().match(request.messages)
    return ""


def chat(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": SAID} | more).encode()


def responses(**more: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi"} | more).encode()


def messages(**more: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 5, "messages": SAID} | more).encode()


def completions(**more: Any) -> bytes:
    return json.dumps({"model": "m"} | more).encode()


def biases(count: int) -> dict[str, int]:
    """So many token biases."""
    return {str(one): 1 for one in range(count)}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"a": 1, "b": [1, 2]}', 5),
        ('["a,[{", "\\",[", "\\\\", {"\\\\\\"": ","}]', 6),
        ('{"a": {}, "b": []}', 5),
    ],
)
def test_separators_within_strings_do_not_count(text: str, values: int) -> None:
    # A value more than a text shows is room for its outermost one.
    marks = values - 1
    assert not has_more_values(text.encode(), marks + 1)
    assert has_more_values(text.encode(), marks - 1)


def test_ordinary_bodies_pass_whatever_their_texts_contain() -> None:
    code = 'rows = [{"a": 1}, {"b": "\\\\"}]\n'
    check_values(chat(messages=[{"role": "user", "content": code * 30_000}]))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, 2]}'}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": code}]},
        {"role": "assistant", "content": code * 10, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": code * 20},
    ]
    assert handled(CHAT, chat(messages=turns * 1_000)) == ""


@pytest.mark.parametrize(
    ("dialect", "body", "actual"),
    [
        (CHAT, lambda: chat(logit_bias=biases(MOST_VALUES)), "JSON values"),
        (CHAT, lambda: chat(x=[[]] * MOST_VALUES), "JSON values"),
        (CHAT, lambda: chat(x=["\ud800"] * MOST_VALUES), "JSON values"),
        (CHAT, lambda: chat(**{f"k{one}": 1 for one in range(MOST_FIELDS)}), "fields"),
        (CHAT, lambda: chat(stop=["a"] * (MOST_STOPS + 1)), "stop must hold at most"),
        (CHAT, lambda: chat(stop=["a"] * 500_000), "JSON values"),
        (RESPONSES, lambda: responses(input=SAID * MOST_VALUES), "JSON values"),
        (MESSAGES, lambda: messages(messages=SAID * MOST_VALUES), "JSON values"),
        (
            MESSAGES,
            lambda: messages(stop_sequences=["a"] * (MOST_STOPS + 1)),
            "stop must hold at most",
        ),
        (
            COMPLETIONS,
            lambda: completions(prompt=["a"] * (MOST_PROMPTS + 1)),
            "prompt must hold at most",
        ),
        (COMPLETIONS, lambda: completions(prompt=["a"] * MOST_VALUES * 2), "JSON values"),
    ],
    ids=str.split("bias lists halves fields stops many-stops items messages sequences prompts all"),
)
def test_too_many_values_are_refused(dialect: Dialect, body: MakeBody, actual: str) -> None:
    result = json.loads(handled(dialect, body()))
    assert actual in result["error"]["message"]
    if dialect is MESSAGES:
        assert result["type"] == "error"
    else:
        assert result["error"]["code"] == 400


def test_notes_beyond_the_limit_stay() -> None:
    aside = "<system-reminder>a</system-reminder>"
    assert own_words(aside * MOST_ASIDES + "hi") == "hi"
    assert own_words(aside * (MOST_ASIDES + 2)) == aside * 2


def computed(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def filled(size: int) -> bytes:
    """An honest conversation of about so many bytes."""
    turn = {"role": "user", "content": 'word, and "so" on\n' * 5}
    reply = {"role": "assistant", "content": "well, {that} is [it]. " * 5}
    return chat(messages=[turn, reply] * (size // 320))


def call() -> dict[str, Any]:
    """A call whose arguments have half a million lists."""
    return {"function": {"name": "f", "arguments": '{"a":[' + "[]," * 500_000 + "[]]}"}}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (CHAT, lambda: chat(messages=[{"role": "user", "content": "\ud800" * 250_000}])),
        (CHAT, lambda: chat(messages=[*SAID, {"role": "assistant", "tool_calls": [call()]}])),
        (CHAT, lambda: chat(logit_bias=biases(120_000))),
        (RESPONSES, lambda: responses(input=SAID * 40_000)),
        (COMPLETIONS, lambda: completions(prompt=["a"] * 300_000)),
    ],
    ids=["halves", "arguments", "bias", "items", "prompts"],
)
def test_no_body_blocks_the_event_loop_much_longer_than_an_ordinary_one(
    dialect: Dialect, body: MakeBody
) -> None:
    data = body()
    honest = filled(len(data))
    usual = least = math.inf
    for _ in range(12):  # in turns: a busy machine slows down one as much as the other
        usual = min(usual, computed(lambda: handled(CHAT, honest)))
        least = min(least, computed(lambda: handled(dialect, data)))
        if least < 2 * usual:
            return
    raise AssertionError(f"{least:.3f} s against {usual:.3f} s of {len(data) >> 10} KiB")
