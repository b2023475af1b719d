"""Rewards, verdicts and rows of groups, without a screen."""

from dataclasses import replace
from typing import Any

import pytest

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
from console.views.events import event_line
from core.commands.plan_groups import vote_refusal
from core.events import GroupLost, ScoringAbstained
from core.state import Candidate, Rating
from tests.support.checks import missing, present
from tests.support.groups import group, text_of
from tests.support.sample import NOW, group_events, state_of


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


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({}, "train", "will train"),
        ({"rewards": (0.5, 0.5, 0.5, 0.5)}, "dead", "dead: equal rewards"),
        ({"until": "GENERATING"}, "none", "not scored yet"),
        ({"until": "DONE"}, "train", "finished, will train"),
        ({"until": "DONE", "rewards": (0.5, 0.5)}, "dead", "dead: equal rewards"),
        ({"until": "ABORTED"}, "lost", "lost: aborted (the operator said so)"),
    ],
)
def test_verdict(changes: dict[str, Any], kind: str, text: str) -> None:
    result = verdict(group(**changes))
    assert (result.kind, result.text) == (kind, text)


def test_a_group_discarded_by_the_engine_is_not_shown_as_trained() -> None:
    lost = GroupLost(server="embedded", group_id="g0001", cause="an engine restart")
    one = state_of(*group_events(1), lost).groups["g0001"]
    result = verdict(one)
    assert (result.kind, result.sign) == ("lost", "×")
    assert result.text == "finished, lost by an engine restart: will not train"
    row = text_of([row_line(GroupRow(one, NOW), 120, False)])
    assert "× lost" in row
    assert "finished" not in row
    shown = text_of(header_lines(one, NOW, 120, DetailOptions()))
    assert result.text in shown
    assert "will train" not in shown
    assert "A sends it again" in shown
    line = present(event_line(lost))
    assert (line.text, line.level) == (result.text, "warning")


def test_verdict_of_ratings_before_they_are_sent() -> None:
    one = group()
    one.rating = Rating(rating="tie", rewards=(0.5,) * 4)
    assert verdict(one).text == "dead: equal rewards (your tie)"
    one.rating = Rating(rating="skip")
    assert verdict(one).text == "lost: skipped, will be aborted"


def test_the_verdict_of_an_abstention_names_the_remedy() -> None:
    events = [
        *group_events(1, until="GENERATING"),
        ScoringAbstained(
            server="embedded", group_id="g0001", part="judge", cause="no answer", traceback="Trace"
        ),
    ]
    one = state_of(*events).groups["g0001"]
    assert verdict(one).kind == "open"
    event_line = text_of(header_lines(one, NOW, 80, DetailOptions()))
    assert not missing(event_line, "judge: no answer", "Rate it by hand", "traceback, 1 line")
    assert "Trace" not in event_line.replace("traceback", "")
    assert "Trace" in text_of(header_lines(one, NOW, 80, DetailOptions(unfolded=True)))


def test_eval_requests_are_not_trained_on() -> None:
    one = group()
    one.episode_type = "eval"
    assert verdict(one).kind == "none"
    assert "not trained on" in vote_refusal(one)


def test_a_vote_after_the_seal_is_refused() -> None:
    assert vote_refusal(group()) == ""
    assert "Already finished" in vote_refusal(group(until="DONE"))
    assert "Already aborted" in vote_refusal(group(until="ABORTED"))
    assert "not complete yet" in vote_refusal(group(until="GENERATING"))


@pytest.mark.parametrize(
    ("rewards", "taught"), [((0.2, 0.9, 0.4, 0.1), "✔ 1.62"), ((0.5,) * 4, "= 0.00"), ((), "? ")]
)
def test_a_row_says_whether_its_group_taught(rewards: tuple[float, ...], taught: str) -> None:
    one = group(until="AWAITING_RATING", **({"rewards": rewards} if rewards else {}))
    if not rewards:
        one.abstained = "the hook failed"
        for candidate in one.candidates:
            candidate.auto_reward = None
    assert f" {taught}" in text_of([row_line(GroupRow(one, NOW), 80, False)])
    trained = row_line(GroupRow(one, NOW, verdict=Verdict("none", "step 7 is over")), 80, False)
    assert " ·  " in text_of([trained]), "the verdict by the state comes first"


def test_repeated_requests_are_counted_unfolded() -> None:
    unfolded = DetailOptions(unfolded=True)
    one = group(1)
    one.joined, one.replayed = 2, 1
    assert "the same request again: 2 waited with it, 1 later got its answer" in text_of(
        header_lines(one, NOW, 200, unfolded)
    )
    assert "same request" not in text_of(header_lines(group(1), NOW, 200, unfolded))


def test_the_weights_are_shown_unfolded_and_a_changed_step_always() -> None:
    one = group(1, step=7)
    one.candidates = [Candidate(index=0, step=7), Candidate(index=1, step=7, later_step=8)]
    options = DetailOptions(weights="s/5d41402a/7, s/5d41402a/7-8")
    assert "step 7, 7-8" in text_of(header_lines(one, NOW, 120, options))
    assert "5d41402a" not in text_of(header_lines(one, NOW, 120, options))
    unfolded = replace(options, unfolded=True)
    assert "weights s/5d41402a/7, s/5d41402a/7-8" in text_of(header_lines(one, NOW, 200, unfolded))


def test_a_group_of_an_earlier_journal_shows_its_step() -> None:
    assert "step 7" in text_of(header_lines(group(1, step=7), NOW, 120, DetailOptions()))
