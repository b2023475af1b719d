"""SmolLM2's tokenizer and chat template."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interface import Completion
from engine.policy.smollm_text import DEFAULT_SYSTEM, SmolTextCodec
from engine.server.timelines import repair_prompt
from tests.support.engine.small_gguf import LETTERS, MERGES, TAGS, vocabulary

pytestmark = pytest.mark.slow

WORDS = vocabulary()
TEXT = SmolTextCodec("small", WORDS, MERGES, range(len(TAGS)), {})


def _pieces(text: str) -> list[str]:
    return [TEXT.decode([i]) for i in TEXT.encode(text)]


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_round_trips_and_never_becomes_a_tag(text: str) -> None:
    ids = TEXT.encode(text)
    assert TEXT.decode(ids) == text
    assert min(ids, default=3) >= len(TAGS)


def test_text_that_resembles_a_tag_is_not_a_tag() -> None:
    assert TEXT.decode(TEXT.encode("<|im_end|>")) == "<|im_end|>"
    assert not set(TEXT.encode("<|im_end|>")) & {0, 1, 2}


def test_merges_go_first_to_last_and_not_over_words() -> None:
    assert _pieces("hello user") == ["hello", " ", "user"]
    assert _pieces("use w") == ["use", " w"]
    assert _pieces("he  ll") == ["he", " ", " ", "ll"]
    assert _pieces("he   ll") == ["he", "  ", " ", "ll"]
    assert _pieces("\n\nhe") == ["\n", "\n", "he"]
    assert _pieces("he\n\n") == ["he", "\n\n"]


def test_digits_are_single_tokens() -> None:
    assert _pieces("1024") == ["1", "0", "2", "4"]
    joined = SmolTextCodec("x", [*WORDS, "10", "½"], [*MERGES, "1 0"], range(3), {})
    assert [joined.decode([i]) for i in joined.encode("10")] == ["1", "0"]


def test_bytes_without_a_token_read_as_question_marks() -> None:
    words = [word for word in WORDS if word != LETTERS[0xF4]]
    text = SmolTextCodec("x", words, MERGES, range(3), {})
    assert text.decode(text.encode("a\U00100000b"))[:2] == "a?"
    assert TEXT.decode(TEXT.encode("a\ud800b")) == "a?b"


def test_a_long_run_takes_no_longer_than_its_length() -> None:
    ids = TEXT.encode("l" * 50_000 + "-" * 50_000 + " " * 50_000)
    assert TEXT.decode(ids) == "l" * 50_000 + "-" * 50_000 + " " * 50_000


def test_a_vocabulary_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="another kind"):
        SmolTextCodec("x", WORDS[3:], MERGES, (), {})
    with pytest.raises(ValueError, match="'a bb'"):
        SmolTextCodec("x", WORDS, ["a bb"], (), {})


def _written(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
) -> str:
    prompt = TEXT.render(messages, tools, 50, 2048)
    assert not prompt.truncated
    return "".join(TEXT.token_texts(prompt.tokens))


def test_a_conversation_is_written_as_the_model_was_taught() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello user"},
        {"role": "user", "content": "and?"},
    ]
    assert _written(messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\nhello user<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert _written(messages[1:2]) == (
        f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n"
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_are_left_out_and_their_results_become_user_messages() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "time?"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "clock", "arguments": "{}"}}]},
        {"role": "tool", "content": "noon"},
    ]
    tools = [{"type": "function", "function": {"name": "clock", "parameters": {}}}]
    written = _written(messages, tools)
    assert written.endswith(
        "<|im_start|>assistant\nclock()<|im_end|>\n<|im_start|>user\nnoon<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert written.count("clock") == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=900)),
        max_size=9,
    ),
    st.integers(1, 400),
)
def test_a_prompt_always_leaves_room(turns: list[tuple[str, str]], limit: int) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    prompt = TEXT.render(messages, None, limit, 300)
    assert 0 < len(prompt.tokens) <= 300 - min(limit, 150)
    begin = "".join(TEXT.token_texts(prompt.tokens)).rpartition("<|im_start|>")
    assert begin[2] == "assistant\n"


def test_the_head_of_the_system_line_and_the_last_turn_stay() -> None:
    messages = [
        {"role": "system", "content": "FIRST " + "x " * 900},
        *({"role": "user", "content": f"turn {i} " + "y " * 50} for i in range(20)),
        {"role": "user", "content": "LAST"},
    ]
    prompt = TEXT.render(messages, None, 50, 400)
    written = "".join(TEXT.token_texts(prompt.tokens))
    assert prompt.truncated
    assert written.startswith("<|im_start|>system\nFIRST x")
    assert written.endswith("LAST<|im_end|>\n<|im_start|>assistant\n")


def test_an_answer_returned_in_other_tokens_is_repaired() -> None:
    messages = [{"role": "user", "content": "hello"}]
    first = TEXT.render(messages, None, 50, 2048)
    drawn = (*(WORDS.index(char) for char in "hello"), TEXT.end)
    done = Completion("hello", first.tokens, drawn, (0.0,) * 6, "stop")
    more = [*messages, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "?"}]
    mended = repair_prompt(TEXT.render(more, None, 50, 2048).tokens, [done], TEXT.decode)
    assert mended.drifts == 1
    assert mended.tokens[: len(first.tokens) + 6] == first.tokens + drawn
    assert "".join(TEXT.token_texts(mended.tokens)) == _written(more)
