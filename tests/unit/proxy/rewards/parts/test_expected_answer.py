"""The answer a query calls for, and the parts that use it: length, relevance, refusal, code."""

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proxy.rewards.part import KINDS, PartInput
from proxy.rewards.parts.expected_answer import FACT, OPEN, expected_answer, value_of_sum
from proxy.rewards.source import GroupContext
from proxy.rewards.text import content_stems, read
from tests.support.proxy.builtin_rewards import score_group

WHERE = Path()


def values(kind: str, ctx: GroupContext, **settings: Any) -> list[float | None]:
    readings = [read(answer) for answer in ctx.answers]
    result = PartInput(ctx, readings, content_stems(ctx.query), ())
    part: Any = KINDS[kind].build(kind, settings, WHERE)
    scores = part.score(result)
    if scores is None:
        return [None] * len(readings)
    return [None if score is None else round(score.value, 2) for score in scores]


@pytest.mark.parametrize(
    ("query", "band", "fact", "code"),
    [
        ("What is the capital of Peru?", FACT, True, False),
        ("How many legs has a crab?", FACT, True, False),
        ("Wie viele Beine hat eine Spinne?", FACT, True, False),
        ("Why is the sky blue?", OPEN, False, False),
        ("What is the difference between a frog and a toad?", OPEN, False, False),
        ("How do I fold a map?", OPEN, False, False),
        ("Describe Lima in two sentences.", (12, 50), False, False),
        ("Answer in one word: is it raining?", (1, 1.1), True, False),
        ("Describe the sea in 100 words.", (60, 110), False, False),
        ("Write a Python function that sorts words.", (5, 200), False, True),
        ("Write a paragraph about Python.", OPEN, False, False),
        ("Write a class schedule for my school.", OPEN, False, False),
        ("", OPEN, False, False),
    ],
)
def test_the_expected_answer_follows_from_the_query(
    query: str, band: tuple[float, float], fact: bool, code: bool
) -> None:
    expected = expected_answer(query)
    assert (expected.least, expected.most) == pytest.approx(band)
    assert (expected.fact, expected.code) == (fact, code)
    assert expected_answer(f"{query} (é)") == expected  # other patterns than for ASCII alone


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("What is 3 + 4?", 7),
        ("What’s 3+4", 7),
        ("18-4=?", 14),
        ("Calculate 6 + 1.", 7),
        ("How much is 12 divided by 4 minus 5?", -2),
        ("Compute: 2 + 3 * 4", 14),
        ("10 - 3 - 2", 5),
        ("0.1 + 0.2", Decimal("0.3")),
        ("999999999 * 999999999", 999999998000000001),
        ("8 / 4", 2),
        ("1 x 7", 7),
        ("7 / 2", None),
        ("5 / 0", None),
        ("What is 9/11?", None),
        ("What is 4x4?", None),
        ("10-12", None),
        ("What is 7?", None),
        ("What is 3 + 4 in binary?", None),
        ("Is 3 + 4 = 8?", None),
        ("2 ** 3", None),
        ("1 + " * 5_000 + "1", None),
        ("", None),
    ],
)
def test_the_value_of_a_query_that_is_a_sum(query: str, value: Decimal | int | None) -> None:
    assert value_of_sum(query) == value


def test_sums_are_computed_only_if_enabled_and_without_tools(group: Any) -> None:
    ctx = group("7", "6", "I like cheese.", query="What is 3 + 4?")
    assert values("reference", ctx, sums=True) == [1.0, 0.0, 0.0]
    assert values("reference", ctx) == [None, None, None]
    with_tools = msgspec.structs.replace(ctx, tools=({"type": "function"},))
    assert values("reference", with_tools, sums=True) == [None, None, None]
    value = group("7", "8", query="What is 3 + 4?", reference="8")
    assert values("reference", value, sums=True) == [0.0, 1.0]


def test_diversity_can_skip_questions_about_facts(group: Any) -> None:
    ctx = group("It is Lima.", "It is Lima.", "It is Cuzco.", query="What is the capital of Peru?")
    assert values("diversity", ctx) == [0.0, 0.0, 1.0]
    assert values("diversity", ctx, by_query=True) == [None, None, None]
    with_tools = msgspec.structs.replace(ctx, tools=({"type": "function"},))
    assert values("diversity", with_tools, by_query=True) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I can't help with that.", 0.2),
        ("I’m sorry, but I can’t assist with that request.", 0.2),
        ("As an AI language model, I am unable to answer that.", 0.2),
        ("Ich kann dir dabei leider nicht helfen.", 0.2),
        ("I don't know.", 0.2),
        ("Please consult a doctor.", 0.2),
        (
            "I can't help with making that at home. It is dangerous and in most places forbidden; "
            "a licensed workshop can do it for you.",
            0.6,
        ),
        ("I'm not sure, but I think it is 1989.", 1.0),
        ("I can't reproduce the bug on my machine; which version do you run?", 1.0),
        ("I cannot help but smile at this.", 1.0),
        ("Sorry for the confusion. The answer is 7.", 1.0),
        ("I am unable to attend the meeting on Friday. Kind regards, Ann", 1.0),
        ("I can't open your file from here. " + "Here is what you do. " * 20, 1.0),
        ("The shop can't help with that.", 1.0),
        ("", 1.0),
    ],
)
def test_refusals(group: Any, text: str, value: float) -> None:
    assert values("refusal", group(text)) == [value]
    if value == 0.2:
        assert values("refusal", group(text), left=0) == [0.0]


def test_a_call_of_a_tool_is_no_refusal(group: Any) -> None:
    call = {"type": "function", "function": {"name": "find", "arguments": "{}"}}
    answer = {"content": "I can't do that without a look.", "tool_calls": [call]}
    assert values("refusal", group(answer)) == [1.0]


@pytest.mark.parametrize("text", ["as an ai ", "i'm sorry but ", "sorry ", "i can't ", " ", "no "])
def test_the_time_of_a_refusal_is_bounded(group: Any, text: str) -> None:
    ctx = group(text * 2_000)
    started = time.process_time()
    values("refusal", ctx)
    assert time.process_time() - started < 0.2


def test_a_few_words_are_no_worse_for_a_fact(group: Any) -> None:
    aside = "Bananas are grown in more than a hundred countries today."
    ctx = group("Canberra.", aside, query="What is the capital of Australia?")
    terse, other = (one.reward for one in score_group(ctx))
    assert terse > other
    assert values("relevance", ctx) == [0.5, 0.0]


def test_repeating_the_question_is_no_answer(group: Any) -> None:
    ctx = group("Tips for sleeping well", "Sleep cool and dark", query="Tips for sleeping well?")
    assert values("relevance", ctx) == [0.0, 0.67]


def test_a_translation_needs_none_of_the_words(group: Any) -> None:
    ctx = group("Wo ist der Bahnhof?", query='Translate "Where is the station?" into German.')
    assert values("relevance", ctx) == [None]


def test_length_follows_the_query(group: Any) -> None:
    few, many = "It is eight.", "word " * 70
    assert values("length", group(few, many, query="How many is it?"), by_query=True) == [
        pytest.approx(0.98, abs=0.02),
        pytest.approx(0.9, abs=0.03),
    ]
    few_words, many_words = values("length", group(few, many, query="Why so?"), by_query=True)
    assert few_words is not None
    assert many_words is not None
    assert few_words < 0.3 < 0.9 < many_words


def test_code_is_scored_only_for_queries_that_request_it(group: Any) -> None:
    texts = ("```py\nx = 1\n```", "```py\nx = 1", "use `sorted(x, key=len)`", "sort it")
    ctx = group(*texts, query="Write a function that sorts words.")
    assert values("code", ctx) == [1.0, 0.6, 0.8, 0.0]
    assert values("code", group(*texts, query="Why?")) == [None] * 4


def offering(ctx: GroupContext, messages: list[Any]) -> GroupContext:
    parameters = {"type": "object", "required": ["path"]}
    tool = {"type": "function", "function": {"name": "read", "parameters": parameters}}
    return GroupContext("g", "r", "t", ctx.query, messages, {}, None, ctx.answers, [tool])


def test_calls_must_fit_the_tools_that_are_offered(group: Any) -> None:
    def call(arguments: str) -> dict[str, Any]:
        function = {"name": "read", "arguments": arguments}
        return {"content": None, "tool_calls": [{"type": "function", "function": function}]}

    plain = group(call('{"path": "a"}'), call("{}"), "I'll read the file.", "It says 8000.")
    ctx = offering(plain, [{"role": "user", "content": "q"}])
    assert values("tools", ctx, declared=True) == [1.0, 0.0, 0.3, None]
    later = offering(plain, [{"role": "user", "content": "q"}, {"role": "tool", "content": "x"}])
    assert values("tools", later, declared=True) == [1.0, 0.0, None, None]
    assert values("tools", ctx) == [1.0, 1.0, None, None]
    assert values("tools", offering(group("a", "b"), []), declared=True) == [None, None]
