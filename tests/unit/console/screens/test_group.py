"""A group on screen: cards, the head above them, its request, rewards and verdict."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ajet_swarm.common.text import one_line
from console.screens.group.card import Card, body, cards, head, shared_lines
from console.screens.group.model import whole_texts
from console.screens.group.request import context_words, entries, folded_first
from console.screens.group.text import DetailOptions, header_lines
from console.screens.requests.text import GroupRow, row_line
from console.session.group_facts import (
    Verdict,
    advantages,
    best_of,
    known_rewards,
    rated_best,
    verdict,
)
from console.text.lines import fit, line_width
from console.text.tool_calls import tool_calls
from console.text.wrap import wrapped
from console.views.events import event_line
from core.commands.plan_groups import vote_refusal
from core.events import GroupLost, GroupOpened, GroupRated, Part, ScoringAbstained
from core.state import Candidate, Group, Rating
from tests.support.checks import missing, present
from tests.support.groups import HOSTILE_TEXTS, group, text_of
from tests.support.sample import NOW, group_events, state_of

UNFOLDED = DetailOptions(unfolded=True)


def header(shown: Group, width: int, options: DetailOptions | None = None) -> str:
    """The lines above the cards."""
    return text_of(header_lines(shown, NOW, width, options or DetailOptions()))


@pytest.mark.parametrize("width", [24, 36, 80])
@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_cards_stay_within_their_width(text: str, width: int) -> None:
    short = text[:3_000]
    failed = Candidate(index=0, text=text, reasoning=short, tool_calls=short, phase="failed")
    failed.error = text
    card = Card(
        failed,
        label="1",
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
    shown = group()
    shown.candidates[2].truncated = True
    made = cards(shown)
    heads = [text_of([head(card, 60, False)]) for card in made]
    assert ["✂ prompt cut" in text for text in heads] == [False, False, True, False]
    assert "✂" in text_of([head(made[2], 12, False)])
    assert "✂" in text_of([head(replace(made[2], blind=True), 60, False)])
    assert "its middle was dropped for #3" in header(shown, 100)
    for candidate in shown.candidates:
        candidate.truncated = True
    assert "was dropped for" not in header(shown, 100)


def test_the_three_marks_are_distinct_and_have_words_if_there_is_room() -> None:
    marked = group()
    marked.returned = 2
    marked.rating = Rating(rating="best", order=(3,), rewards=(0, 0, 0, 1))
    marked.candidates[1].reward = 0.9
    heads = [text_of([head(card, 60, False)]) for card in cards(marked)]
    narrow = [text_of([head(card, 12, False)]) for card in cards(marked)]
    for place, words, sign in ((1, "winner", "▲"), (2, "returned", "→"), (3, "rated best", "✓")):
        assert [at for at, text in enumerate(heads) if words in text] == [place]
        assert sign in narrow[place]


def test_the_compact_facts_start_with_the_most_important_ones() -> None:
    parts = (Part("fits", 1.0, gate=True), Part("said", 0.0, gate=True), Part("right", 0.4))
    said = Candidate(index=0, text="x", parts=parts)
    line = text_of(body(Card(said, "1", reward=0.0, compact=True), 80))
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
    assert [card.cause for card in cards(shown)] == ["human rating"] * 4


def test_reasoning_starts_folded() -> None:
    answer = Candidate(index=0, text="yes", reasoning="one\ntwo", phase="answered")
    card = Card(answer, label="1")
    assert "two" not in text_of(body(card, 60))
    assert "reasoning, 2 lines" in text_of(body(card, 60))
    assert "two" in text_of(body(replace(card, unfolded=True), 60))


def test_tool_calls_are_indented_json_and_other_text_is_unchanged() -> None:
    calls = '[{"function":{"name":"find","arguments":"{\\"q\\":[1,2]}"}}]'
    assert tool_calls(calls) == [("find", '{\n  "q": [\n    1,\n    2\n  ]\n}')]
    assert tool_calls('[{"function":{"name":"f","arguments":"not json"}}]') == [("f", "not json")]
    assert (tool_calls("{cut off"), tool_calls("[" * 5_000)[0][0]) == ([("", "{cut off")], "")
    assert tool_calls("[3, null]") == [("", "3"), ("", "null")]


def test_the_images_of_a_request_are_named_where_its_query_is_shown() -> None:
    opened, *rest = group_events(1)
    assert isinstance(opened, GroupOpened)
    opened = msgspec.structs.replace(opened, images=("[image 1.2 MB png]",))
    shown = "Why is the sky blue? [image 1.2 MB png]"
    assert whole_texts([opened, *rest])[0] == shown
    assert state_of(opened, *rest).groups["g0001"].query == shown
    line = present(event_line(opened))
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
        plain = Card(Candidate(index=0, text=text), label="1", blind=True)
        lines = body(replace(plain, beside=texts), 20)
        assert text_of(lines) == text_of(body(plain, 20))
        tones = {
            text_of([line]).strip(): {tone for words, tone in line if words.strip()}
            for line in lines
        }
        muted = {words for words in tones if tones[words] == {"$muted"}}
        assert muted == dimmed


def test_the_head_shows_the_meaning_of_a_held_rating() -> None:
    events = group_events(1, until="AWAITING_RATING")
    vote: dict[str, Any] = {"order": (2,), "rewards": (0.0, 0.0, 1.0, 0.0), "rater": "anna"}
    rated = GroupRated(server="embedded", group_id="g0001", rating="best", **vote)
    shown = header(state_of(*events, rated).groups["g0001"], 100)
    assert "rated best #3 by anna: rewards 0.00 0.00 1.00 0.00 · held, sends in 0:20" in shown


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


CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
}


BODY = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Weather of a city",
                "parameters": {"type": "object"},
            },
        }
    ],
    "messages": [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny\n" * 20},
        {"role": "assistant", "content": "Sunny.", "reasoning": "It says sunny."},
        {"role": "user", "content": [{"type": "text", "text": "And Oslo?"}]},
    ],
}


def test_each_part_of_a_request_is_an_entry() -> None:
    result = entries(BODY)
    assert [(entry.kind, entry.title) for entry in result] == [
        ("tools", "1 tool"),
        ("system", "system"),
        ("user", "user"),
        ("call", "assistant calls get_weather"),
        ("result", "result of get_weather"),
        ("reasoning", "assistant, reasoning"),
        ("assistant", "assistant"),
        ("user", "user"),
    ]
    assert '"city": "Rome"' in result[3].text
    assert result[-1].text == "And Oslo?"
    assert context_words(result, 3) == "turn 3, system prompt of 3 words, 1 tool, 1 tool call"


def test_invalid_messages_are_skipped() -> None:
    assert (entries({}), entries({"messages": "no", "tools": 3})) == ([], [])
    assert entries({"messages": [1, {"role": 7, "content": 8, "tool_calls": [None]}]})[0].text == ""


def test_long_entries_start_folded_and_long_conversations_at_the_last_question() -> None:
    result = entries(BODY)
    assert folded_first(result) == {4}
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 30
    many = entries({"messages": [*turns, {"role": "user", "content": "last"}]})
    assert folded_first(many) == set(range(60))


def test_known_rewards_are_automatic_then_rated_then_sealed() -> None:
    open_group = group()
    assert (known_rewards(open_group), best_of(open_group)) == ([0.2, 0.9, 0.4, 0.1], 1)
    open_group.rating = Rating(rating="best", order=(3,), rewards=(0.0, 0.0, 0.0, 1.0))
    assert (known_rewards(open_group), best_of(open_group)) == ([0.0, 0.0, 0.0, 1.0], 3)
    assert rated_best(open_group) == 3
    done = group(until="DONE")
    done.rating = open_group.rating
    assert known_rewards(done) == [0.2, 0.9, 0.4, 0.1]


def test_a_short_group_spreads_its_rewards_over_those_that_answered() -> None:
    short = group()
    short.candidates[1] = Candidate(index=1, phase="failed", error="gone")
    short.rating = Rating(rating="scores", scores=(0.1, 0.9, 0.3), rewards=(0.1, 0.9, 0.3))
    assert (short.answered, known_rewards(short)) == ([0, 2, 3], [0.1, None, 0.9, 0.3])
    assert rated_best(short) == 2


def test_a_tie_of_rewards_goes_to_the_lowest_index() -> None:
    assert best_of(group(rewards=(0.1, 0.7, 0.7, 0.2))) == 1


def test_advantages_have_mean_zero_and_unit_deviation() -> None:
    values = [value for value in advantages(group()) if value is not None]
    assert sum(values) == pytest.approx(0.0)
    assert sum(value * value for value in values) / 4 == pytest.approx(1.0)
    assert advantages(group(rewards=(0.5, 0.5, 0.5))) == [0.0, 0.0, 0.0]


def test_a_group_discarded_by_the_engine_is_not_shown_as_trained() -> None:
    lost = GroupLost(server="embedded", group_id="g0001", cause="an engine restart")
    discarded = state_of(*group_events(1), lost).groups["g0001"]
    result = verdict(discarded)
    assert (result.kind, result.sign) == ("lost", "×")
    assert result.text == "finished, lost by an engine restart: will not train"
    row = text_of([row_line(GroupRow(discarded, NOW), 120, False)])
    assert "× lost" in row
    assert "finished" not in row
    shown = header(discarded, 120)
    assert not missing(shown, result.text, "A sends it again")
    assert "will train" not in shown
    line = present(event_line(lost))
    assert (line.text, line.level) == (result.text, "warning")


def test_verdict_of_ratings_before_they_are_sent() -> None:
    rated = group()
    rated.rating = Rating(rating="tie", rewards=(0.5,) * 4)
    assert verdict(rated).text == "dead: equal rewards (your tie)"
    rated.rating = Rating(rating="skip")
    assert verdict(rated).text == "lost: skipped, will be aborted"


def test_the_verdict_of_an_abstention_names_the_remedy() -> None:
    abstained = ScoringAbstained(
        server="embedded", group_id="g0001", part="judge", cause="no answer", traceback="Trace"
    )
    unscored = state_of(*group_events(1, until="GENERATING"), abstained).groups["g0001"]
    assert verdict(unscored).kind == "open"
    folded = header(unscored, 80)
    assert not missing(folded, "judge: no answer", "Rate it by hand", "traceback, 1 line")
    assert "Trace" not in folded.replace("traceback", "")
    assert "Trace" in header(unscored, 80, UNFOLDED)


def test_eval_requests_are_not_trained_on() -> None:
    evaluated = group()
    evaluated.episode_type = "eval"
    assert verdict(evaluated).kind == "none"
    assert "not trained on" in vote_refusal(evaluated)


def test_a_vote_after_the_seal_is_refused() -> None:
    assert vote_refusal(group()) == ""
    assert "Already finished" in vote_refusal(group(until="DONE"))
    assert "Already aborted" in vote_refusal(group(until="ABORTED"))
    assert "not complete yet" in vote_refusal(group(until="GENERATING"))


@pytest.mark.parametrize(
    ("rewards", "taught"), [((0.2, 0.9, 0.4, 0.1), "✔ 1.62"), ((0.5,) * 4, "= 0.00"), ((), "? ")]
)
def test_a_row_says_whether_its_group_taught(rewards: tuple[float, ...], taught: str) -> None:
    shown = group(until="AWAITING_RATING", **({"rewards": rewards} if rewards else {}))
    if not rewards:
        shown.abstained = "the hook failed"
        for candidate in shown.candidates:
            candidate.auto_reward = None
    assert f" {taught}" in text_of([row_line(GroupRow(shown, NOW), 80, False)])
    trained = row_line(GroupRow(shown, NOW, verdict=Verdict("none", "step 7 is over")), 80, False)
    assert " ·  " in text_of([trained]), "the verdict by the state comes first"


def test_repeated_requests_are_counted_unfolded() -> None:
    again = group(1)
    again.joined, again.replayed = 2, 1
    words = "the same request again: 2 waited with it, 1 later got its answer"
    assert words in header(again, 200, UNFOLDED)
    assert "same request" not in header(group(1), 200, UNFOLDED)


def test_the_weights_are_shown_unfolded_and_a_changed_step_always() -> None:
    shown = group(1, step=7)
    shown.candidates = [Candidate(index=0, step=7), Candidate(index=1, step=7, later_step=8)]
    options = DetailOptions(weights="s/5d41402a/7, s/5d41402a/7-8")
    assert "step 7, 7-8" in header(shown, 120, options)
    assert "5d41402a" not in header(shown, 120, options)
    unfolded = replace(options, unfolded=True)
    assert "weights s/5d41402a/7, s/5d41402a/7-8" in header(shown, 200, unfolded)


def test_a_line_of_a_megabyte_ends_with_how_much_is_left_out() -> None:
    assert wrapped("é" * 1_000_000, 40)[-1] == "… 800000 more characters"
