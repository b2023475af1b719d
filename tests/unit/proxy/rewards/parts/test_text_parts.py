"""Length, relevance, diversity, repetition, language, latency, tools: values and reasons."""

import math
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.rewards.part import KINDS, GroupPart, PartInput, SettingError
from proxy.rewards.parts.words import shares
from proxy.rewards.source import Answer, GroupContext
from proxy.rewards.text import content_stems, read

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
    assert scores is not None
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
def test_hostile_text_gets_a_value_with_a_reason_or_none(
    group: Any, kind: str, settings: dict[str, Any]
) -> None:
    part = made(kind, **settings)
    for reference in (None, "42", "Paris"):
        result = part.score(part_input(group(*HOSTILE, reference=reference))) or []
        for one in result:
            assert one is None or (0.0 <= one.value <= 1.0 and one.reason)


def test_a_band_of_lengths(group: Any) -> None:
    texts = ["w " * count for count in (1, 5, 10, 30, 50, 100, 500)]
    result = values(made("length", least=10, most=50), part_input(group(*texts)))
    assert result[2:5] == [1.0, 1.0, 1.0]
    assert result[:3] == sorted(map(float, result[:3]))  # type: ignore[arg-type]
    assert result[1] == pytest.approx(result[5])  # half the least, twice the most


def test_an_open_band_has_one_side(group: Any) -> None:
    assert values(made("length", most=5), part_input(group("a", "a b c d e", "a " * 50)))[:2] == [
        1,
        1,
    ]
    assert values(made("length", least=5), part_input(group("a " * 500, "a")))[0] == 1.0


def test_latency_falls_from_good_to_bad(group: Any) -> None:
    ctx = group(*"abcd")
    answers = tuple(
        Answer(answer.index, answer.message, "stop", "e", seconds, {})
        for answer, seconds in zip(ctx.answers, (0.5, 2.0, 6.0, 99.0), strict=True)
    )
    late = GroupContext("g", "r", "t", "q", [], {}, None, answers)
    assert values(made("latency", good=2, bad=10), part_input(late)) == [1.0, 1.0, 0.5, 0.0]


def test_history_contains_the_words_of_winners(group: Any) -> None:
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


def test_language_of_the_query_is_wanted(group: Any) -> None:
    english, german = "It is the city that you want to see", "Das ist die Stadt, die ich mag"
    result = part_input(group(english, german, "42", query="What is the capital of France?"))
    one, two, three = values(made("language"), result)
    assert (one, three) == (1.0, None)
    assert two is not None
    assert two < 0.5
    assert made("language").score(part_input(group(english, query="42?"))) is None


def test_tools_that_are_not_offered(group: Any) -> None:
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
