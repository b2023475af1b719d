"""Candidates as cards, the head above them, and how text is broken into lines."""

import time
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ajet_swarm.common.text import one_line
from console.screens.group.card import Card, body, cards, head, shared_lines
from console.screens.group.model import whole_texts
from console.screens.group.text import DetailOptions, header_lines, tabs_line
from console.text.lines import fit, line_width
from console.text.tool_calls import tool_calls
from console.text.wrap import wrapped
from console.views.events import event_line
from core.events import GroupOpened, GroupRated, Part
from core.state import Rating
from tests.support.console import NOW, group_events, state_of
from tests.support.groups import HOSTILE_TEXTS, group, text_of


@pytest.mark.parametrize("width", [24, 36, 80])
@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_cards_stay_within_their_width(text: str, width: int) -> None:
    card = Card(
        index=0,
        label="1",
        text=text,
        reasoning=text[:3_000],
        tool_calls=text[:3_000],
        error=text,
        phase="failed",
        winner=True,
        returned=True,
        rated=True,
        reward=0.5,
        cause=one_line(text, 300),
        unfolded=True,
    )
    for line in (head(card, width, True), *body(card, width)):
        assert line_width(line) <= width
        for piece, _ in line:
            assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in piece)


def test_a_truncated_prompt_is_marked_even_while_blind() -> None:
    one = group()
    one.candidates[2].truncated = True
    made = cards(one)
    heads = [text_of([head(card, 60, False)]) for card in made]
    assert ["✂ prompt cut" in text for text in heads] == [False, False, True, False]
    assert "✂" in text_of([head(made[2], 12, False)])
    assert "✂" in text_of([head(replace(made[2], blind=True), 60, False)])
    above = text_of(header_lines(one, NOW, 100, DetailOptions()))
    assert "its middle was dropped for #3" in above
    for candidate in one.candidates:
        candidate.truncated = True
    assert "was dropped for" not in text_of(header_lines(one, NOW, 100, DetailOptions()))


def test_the_three_marks_are_distinct_and_have_words_if_there_is_room() -> None:
    one = group()
    one.returned = 2
    one.rating = Rating(rating="best", order=(3,), rewards=(0, 0, 0, 1))
    one.candidates[1].reward = 0.9
    heads = [text_of([head(card, 60, False)]) for card in cards(one)]
    assert ["winner" in text for text in heads] == [False, True, False, False]
    assert ["returned" in text for text in heads] == [False, False, True, False]
    assert ["rated best" in text for text in heads] == [False, False, False, True]
    narrow = [text_of([head(card, 12, False)]) for card in cards(one)]
    assert "▲" in narrow[1]
    assert "→" in narrow[2]
    assert "✓" in narrow[3]


def test_a_card_shows_parts_with_weight_and_reason() -> None:
    event_line = text_of(body(cards(group())[1], 60))
    for words in ("reward 0.90", "advantage ≈+1.62", "length", "× 0.5", "42 words", "gate", "stop"):
        assert words in event_line


def test_the_compact_facts_start_with_the_most_important_ones() -> None:
    parts = (Part("fits", 1.0, gate=True), Part("said", 0.0, gate=True), Part("right", 0.4))
    line = text_of(body(Card(0, "1", text="x", reward=0.0, parts=parts, compact=True), 80))
    assert line.index("said 0.00 gate") < line.index("right 0.40") < line.index("fits 1.00 gate")


def test_the_cause_of_a_low_reward_is_shown_beside_it() -> None:
    shown = group()
    refusal = Part("refusal", 0.0, gate=True, reason="declines to answer")
    shown.candidates[0].auto_reward = 0.0
    shown.candidates[0].parts = (refusal, Part("length", 0.9))
    low, other, *_ = cards(shown)
    assert "reward 0.00  advantage ≈-1.00  refusal: declines to answer" in text_of(body(low, 80))
    assert "refusal: declines to answer" in text_of(body(low, 40))
    line = text_of(body(replace(low, compact=True), 80))
    assert line.startswith(" reward 0.00 (refusal: declines to answer)  advantage")
    assert "refusal" not in text_of(body(replace(low, blind=True), 80))
    assert other.cause == ""
    shown.rating = Rating(rating="best", order=(1,), rewards=(0.0, 1.0, 0.0, 0.0))
    assert [one.cause for one in cards(shown)] == ["human rating"] * 4


def test_reasoning_starts_folded() -> None:
    card = Card(index=0, label="1", text="yes", reasoning="one\ntwo", phase="answered")
    assert "two" not in text_of(body(card, 60))
    assert "reasoning, 2 lines" in text_of(body(card, 60))
    unfolded = Card(
        index=0, label="1", text="yes", reasoning="one\ntwo", phase="answered", unfolded=True
    )
    assert "two" in text_of(body(unfolded, 60))


def test_tool_calls_are_indented_json_and_other_text_is_unchanged() -> None:
    calls = '[{"function":{"name":"find","arguments":"{\\"q\\":[1,2]}"}}]'
    assert tool_calls(calls) == [("find", '{\n  "q": [\n    1,\n    2\n  ]\n}')]
    assert tool_calls('[{"function":{"name":"f","arguments":"not json"}}]') == [("f", "not json")]
    assert tool_calls("{cut off") == [("", "{cut off")]
    assert tool_calls("[" * 5_000)[0][0] == ""
    assert tool_calls("[3, null]") == [("", "3"), ("", "null")]


def test_whole_texts_replace_cut_ones() -> None:
    long_text = "word " * 1_000
    events = group_events(1, texts=[long_text, "b", "c", "d"], until="AWAITING_RATING")
    one = state_of(*events).groups["g0001"]
    assert cards(one)[0].cut
    query, whole = whole_texts(events)
    assert query == "Why is the sky blue?"
    assert cards(one, whole)[0].text == long_text
    assert not cards(one, whole)[0].cut


def test_the_images_of_a_request_are_named_where_its_query_is_shown() -> None:
    opened, *rest = group_events(1)
    assert isinstance(opened, GroupOpened)
    opened = msgspec.structs.replace(opened, images=("[image 1.2 MB png]",))
    shown = "Why is the sky blue? [image 1.2 MB png]"
    assert whole_texts([opened, *rest])[0] == shown
    assert state_of(opened, *rest).groups["g0001"].query == shown
    line = event_line(opened)
    assert line is not None
    assert shown in line.text


@pytest.mark.parametrize(
    ("texts", "dimmed"),
    [
        (("same\nmine", "same\nyours"), {"same"}),
        (("# Title\n\n- same\n- a", "# Title\n\n- same\n- b"), {"Title", "• same"}),
        (("```py\nx = 1\ny = 2\n```", "```py\nx = 1\ny = 3\n```"), {"▏ py", "▏ x = 1"}),
        (("one two three four", "one two five six"), set()),
        (("one two three four 5", "one two three four 6"), {"one two three four"}),
        (("same", "same"), set()),
        (("same\na", "same\nb", "other"), set()),
        (("alone",), set()),
        ((), set()),
    ],
)
def test_lines_that_all_answers_share_are_dimmed(texts: tuple[str, ...], dimmed: set[str]) -> None:
    assert shared_lines(texts, 18) == dimmed
    for text in texts:
        plain = Card(index=0, label="1", text=text, blind=True)
        lines = body(replace(plain, beside=texts), 20)
        assert text_of(lines) == text_of(body(plain, 20))
        tones = {
            text_of([line]).strip(): {tone for words, tone in line if words.strip()}
            for line in lines
        }
        muted = {words for words in tones if tones[words] == {"$muted"}}
        assert muted == dimmed


def test_tabs_show_every_candidate() -> None:
    text = text_of([tabs_line(cards(group()), 0, range(0, 2))])
    for label in (" 1 0.20 ", " 2▲→ 0.90 ", " 3 0.40 ", " 4 0.10 "):
        assert label in text


def test_the_head_shows_all_facts_of_a_finished_group() -> None:
    one = group(until="DONE", row_id="q007")
    one.reference = "Rayleigh"
    one.note = "look again"
    event_line = text_of(header_lines(one, NOW, 80, DetailOptions(unfolded=True)))
    for words in (
        "● finished",
        "finished, will train",
        "q007",
        "Rayleigh",
        "claim 0.2s",
        "slowest #4",
        "note",
    ):
        assert words in event_line
    assert all(line_width(line) <= 80 for line in header_lines(one, NOW, 80, DetailOptions()))


def test_the_head_shows_the_meaning_of_a_held_rating() -> None:
    events = group_events(1, until="AWAITING_RATING")
    rated = GroupRated(
        server="embedded",
        group_id="g0001",
        rating="best",
        order=(2,),
        rewards=(0.0, 0.0, 1.0, 0.0),
        rater="anna",
    )
    event_line = text_of(
        header_lines(state_of(*events, rated).groups["g0001"], NOW, 100, DetailOptions())
    )
    assert "rated best #3 by anna: rewards 0.00 0.00 1.00 0.00 · held, sends in 0:20" in event_line


@pytest.mark.slow
@given(st.text(max_size=400), st.integers(2, 60))
def test_wrapped_lines_fit_and_keep_every_letter(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    letters = [char for char in text if char.isalnum()]
    shown = [char for char in "".join(lines) if char.isalnum()]
    assert [char for char in letters if char in shown] == [
        char for char in shown if char in letters
    ]


@pytest.mark.slow
@given(st.text(max_size=200), st.integers(1, 60), st.booleans())
def test_fit_is_exact(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(wrapped(text, 200)[0] if wrapped(text, 200) else "", width, right)) == width


def test_a_line_of_a_megabyte_wraps_quickly_and_reports_the_omitted_rest() -> None:
    began = time.process_time()
    lines = wrapped("é" * 1_000_000, 40)
    assert time.process_time() - began < 2.0
    assert lines[-1] == "… 800000 more characters"
