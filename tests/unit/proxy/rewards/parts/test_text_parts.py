"""Parts that read the text: lengths, words, languages, tools, and the answer a query calls for."""

import math
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from proxy.rewards.part import KINDS, GroupPart, PartInput, SettingError
from proxy.rewards.parts.expected_answer import FACT, OPEN, expected_answer, value_of_sum
from proxy.rewards.parts.words import shares
from proxy.rewards.source import Answer, GroupContext
from proxy.rewards.text import content_stems, read
from tests.support.proxy.builtin_rewards import score_group
from tests.unit.proxy.rewards.conftest import group

HOSTILE = (
    "",
    " \n\t",
    "\x00\x1b[31m",
    "\ud800 lone",
    "[bold]x[/bold]",
    "🤖" * 500,
    "a" * 200_000,
    "word " * 40_000,
    "哈" * 5_000,
    '{"a": ' * 2_000,
    "give me 10",
)


CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}


def part_input(ctx: GroupContext, recent: tuple[frozenset[int], ...] = ()) -> PartInput:
    return PartInput(
        ctx, [read(answer) for answer in ctx.answers], content_stems(ctx.query), recent
    )


def made(kind: str, **settings: Any) -> GroupPart:
    return cast(GroupPart, KINDS[kind].build(kind, settings, Path()))


def values(part: GroupPart, looked: PartInput) -> list[float | None]:
    scores = part.score(looked)
    return [None if score is None else score.value for score in scores]


PLAIN = [
    ("length", {}),
    ("length", {"least": 10, "most": 50}),
    ("relevance", {}),
    ("diversity", {"against": "both"}),
    ("repetition", {}),
    ("finished", {}),
    ("reference", {}),
    ("exact", {}),
    ("numeric", {}),
    ("language", {}),
    ("language", {"wanted": "de"}),
    ("latency", {}),
    ("tools", {"required": True, "declared": True}),
    ("format", {"must": ["x"], "match": [r"\d+"], "json": True}),
]


@pytest.mark.parametrize(("kind", "settings"), PLAIN)
def test_hostile_text_gets_a_reasoned_value_or_none(kind: str, settings: dict[str, Any]) -> None:
    part = made(kind, **settings)
    for reference in (None, "42", "Paris"):
        result = part.score(part_input(group(*HOSTILE, reference=reference))) or []
        for one in result:
            assert one is None or (0.0 <= one.value <= 1.0 and one.reason)


def test_a_band_of_lengths() -> None:
    texts = ["w " * count for count in (1, 5, 10, 30, 50, 100, 500)]
    result = values(made("length", least=10, most=50), part_input(group(*texts)))
    assert result[2:5] == [1.0, 1.0, 1.0]
    assert result[:3] == sorted(map(float, result[:3]))  # type: ignore[arg-type]
    assert result[1] == pytest.approx(result[5])  # half the least, twice the most


def test_an_open_band_has_one_side() -> None:
    assert values(made("length", most=5), part_input(group("a", "a b c d e", "a " * 50)))[:2] == [
        1,
        1,
    ]
    assert values(made("length", least=5), part_input(group("a " * 500, "a")))[0] == 1.0


def test_latency_falls_from_good_to_bad() -> None:
    ctx = group(*"abcd")
    answers = tuple(
        Answer(answer.index, answer.message, "stop", "e", seconds, {})
        for answer, seconds in zip(ctx.answers, (0.5, 2.0, 6.0, 99.0), strict=True)
    )
    late = GroupContext("g", "r", "t", "q", [], {}, None, answers)
    assert values(made("latency", good=2, bad=10), part_input(late)) == [1.0, 1.0, 0.5, 0.0]


def test_history_contains_the_words_of_winners() -> None:
    result = part_input(group("the cat sat on the mat", "a dog ran in the park today"))
    past = result.readings[0].grams
    again = PartInput(result.context, result.readings, result.stems, (past,))
    assert values(made("diversity", against="recent"), again) == [0.0, 1.0]
    assert values(made("diversity", against="group"), again) == [1.0, 1.0]
    assert values(made("diversity", against="both"), again) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The capital of France is a city that has many museums", "en"),
        ("Die Hauptstadt von Frankreich ist eine Stadt mit vielen Museen", "de"),
        ("La capitale de la France est une ville avec des musées", "fr"),
        ("La capital de España es una ciudad con muchos museos y los parques", "es"),
        ("La città è una delle più belle, che non si può dire di tutte", "it"),
        ("巴黎是法国的首都", "zh"),
        ("パリはフランスの首都です", "ja"),
        ("Париж столица Франции", "ru"),
        ("파리는 프랑스의 수도입니다", "ko"),
    ],
)
def test_languages(text: str, language: str) -> None:
    assert next(iter(shares(text))) == language


def test_language_of_the_query_is_wanted() -> None:
    english, german = "It is the city that you want to see", "Das ist die Stadt, die ich mag"
    result = part_input(group(english, german, "42", query="What is the capital of France?"))
    one, two, three = values(made("language"), result)
    assert (one, three) == (1.0, None)
    assert two < 0.5
    assert made("language").score(part_input(group(english, query="42?"))) is None


def test_tools_that_are_not_offered() -> None:
    other = {**CALL, "function": {"name": "fetch", "arguments": "{}"}}
    ctx = group(
        {"content": None, "tool_calls": [CALL]}, {"content": "", "tool_calls": [other]}, "x"
    )
    offered = GroupContext(
        ctx.group_id, "r", "t", "q", [], {}, None, ctx.answers,
        [{"type": "function", "function": {"name": "find"}}, "junk", {"function": 3}],
    )  # fmt: skip
    assert values(made("tools", declared=True), part_input(offered)) == [1.0, 0.0, None]
    assert values(made("tools", names=["fetch"]), part_input(ctx)) == [0.0, 1.0, None]
    assert values(made("tools", required=True), part_input(ctx)) == [1.0, 1.0, 0.0]
    assert made("tools").score(part_input(group("a", "b"))) is None


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        ("length", {"ideal": 0}, "ideal"),
        ("length", {"ideal": "sixty"}, "ideal"),
        ("length", {"ideal": True}, "ideal"),
        ("length", {"ideal": math.nan}, "ideal"),
        ("length", {"idael": 60}, "idael"),
        ("length", {"least": 50, "most": 10}, "least"),
        ("relevance", {"enough": 0}, "enough"),
        ("diversity", {"against": "all"}, "against"),
        ("repetition", {"closes": 0.7, "shut": 0.2}, "shut"),
        ("finished", {"cut": 2}, "cut"),
        ("language", {"wanted": "klingon"}, "wanted"),
        ("latency", {"good": 9, "bad": 3}, "bad"),
        ("tools", {"names": [1]}, "names"),
        ("hook", {}, "folder"),
        ("hook", {"folder": "nowhere"}, "folder"),
    ],
)
def test_bad_settings_name_their_field(kind: str, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingError) as caught:
        KINDS[kind].build("mine", settings, Path("/nowhere"))
    assert caught.value.field == field
    assert caught.value.what


PLACE = Path()


def values_of(kind: str, ctx: GroupContext, **settings: Any) -> list[float | None]:
    readings = [read(answer) for answer in ctx.answers]
    result = PartInput(ctx, readings, content_stems(ctx.query), ())
    part: Any = KINDS[kind].build(kind, settings, PLACE)
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


def test_sums_are_computed_only_if_enabled_and_without_tools() -> None:
    ctx = group("7", "6", "I like cheese.", query="What is 3 + 4?")
    assert values_of("reference", ctx, sums=True) == [1.0, 0.0, 0.0]
    assert values_of("reference", ctx) == [None, None, None]
    with_tools = msgspec.structs.replace(ctx, tools=({"type": "function"},))
    assert values_of("reference", with_tools, sums=True) == [None, None, None]
    value = group("7", "8", query="What is 3 + 4?", reference="8")
    assert values_of("reference", value, sums=True) == [0.0, 1.0]


def test_diversity_can_skip_questions_about_facts() -> None:
    ctx = group("It is Lima.", "It is Lima.", "It is Cuzco.", query="What is the capital of Peru?")
    assert values_of("diversity", ctx) == [0.0, 0.0, 1.0]
    assert values_of("diversity", ctx, by_query=True) == [None, None, None]
    with_tools = msgspec.structs.replace(ctx, tools=({"type": "function"},))
    assert values_of("diversity", with_tools, by_query=True) == [0.0, 0.0, 1.0]


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
def test_refusals(text: str, value: float) -> None:
    assert values_of("refusal", group(text)) == [value]
    if value == 0.2:
        assert values_of("refusal", group(text), left=0) == [0.0]


def test_a_call_of_a_tool_is_no_refusal() -> None:
    call = {"type": "function", "function": {"name": "find", "arguments": "{}"}}
    answer = {"content": "I can't do that without a look.", "tool_calls": [call]}
    assert values_of("refusal", group(answer)) == [1.0]


@pytest.mark.parametrize("text", ["as an ai ", "i'm sorry but ", "sorry ", "i can't ", " ", "no "])
def test_the_time_of_a_refusal_is_bounded(text: str) -> None:
    ctx = group(text * 2_000)
    started = time.process_time()
    values_of("refusal", ctx)
    assert time.process_time() - started < 0.2


def test_a_few_words_are_no_worse_for_a_fact() -> None:
    aside = "Bananas are grown in more than a hundred countries today."
    ctx = group("Canberra.", aside, query="What is the capital of Australia?")
    terse, other = (one.reward for one in score_group(ctx))
    assert terse > other
    assert values_of("relevance", ctx) == [0.5, 0.0]


def test_repeating_the_question_is_no_answer() -> None:
    ctx = group("Tips for sleeping well", "Sleep cool and dark", query="Tips for sleeping well?")
    assert values_of("relevance", ctx) == [0.0, 0.67]


def test_a_translation_needs_none_of_the_words() -> None:
    ctx = group("Wo ist der Bahnhof?", query='Translate "Where is the station?" into German.')
    assert values_of("relevance", ctx) == [None]


def test_length_follows_the_query() -> None:
    few, many = "It is eight.", "word " * 70
    assert values_of("length", group(few, many, query="How many is it?"), by_query=True) == [
        pytest.approx(0.98, abs=0.02),
        pytest.approx(0.9, abs=0.03),
    ]
    few_words, many_words = values_of("length", group(few, many, query="Why so?"), by_query=True)
    assert few_words < 0.3 < 0.9 < many_words


def test_code_is_scored_only_for_queries_that_request_it() -> None:
    texts = ("```py\nx = 1\n```", "```py\nx = 1", "use `sorted(x, key=len)`", "sort it")
    ctx = group(*texts, query="Write a function that sorts words.")
    assert values_of("code", ctx) == [1.0, 0.6, 0.8, 0.0]
    assert values_of("code", group(*texts, query="Why?")) == [None] * 4


def offering(ctx: GroupContext, messages: list[Any]) -> GroupContext:
    parameters = {"type": "object", "required": ["path"]}
    tool = {"type": "function", "function": {"name": "read", "parameters": parameters}}
    return GroupContext("g", "r", "t", ctx.query, messages, {}, None, ctx.answers, [tool])


def test_calls_must_fit_the_tools_that_are_offered() -> None:
    def call(arguments: str) -> dict[str, Any]:
        function = {"name": "read", "arguments": arguments}
        return {"content": None, "tool_calls": [{"type": "function", "function": function}]}

    plain = group(call('{"path": "a"}'), call("{}"), "I'll read the file.", "It says 8000.")
    ctx = offering(plain, [{"role": "user", "content": "q"}])
    assert values_of("tools", ctx, declared=True) == [1.0, 0.0, 0.3, None]
    later = offering(plain, [{"role": "user", "content": "q"}, {"role": "tool", "content": "x"}])
    assert values_of("tools", later, declared=True) == [1.0, 0.0, None, None]
    assert values_of("tools", ctx) == [1.0, 1.0, None, None]
    assert values_of("tools", offering(group("a", "b"), []), declared=True) == [None, None]
