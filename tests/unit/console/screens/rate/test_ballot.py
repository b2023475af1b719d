"""Ratings while they are typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.screens.rate.ballot import Ballot, Vote, reshuffled, seed, shown_order
from core.state import Candidate, Group
from tests.support.console import NOW, group_events, state_of
from tests.support.groups import group
from tests.support.ratings import rated_state


@pytest.mark.slow
@given(st.text(min_size=1), st.integers(1, 9))
def test_blind_order_is_a_stable_permutation(group_id: str, n: int) -> None:
    order = shown_order(group_id, range(n))
    assert sorted(order) == list(range(n))
    assert order == shown_order(group_id, range(n))


def test_blind_orders_differ_between_groups() -> None:
    orders = {shown_order(f"g{number}", range(4)) for number in range(200)}
    assert len(orders) == 24


@pytest.mark.slow
@given(st.integers(0, 10_000), st.permutations(range(1, 5)))
def test_digits_refer_to_places_and_votes_to_candidates(number: int, keys: list[int]) -> None:
    ballot = Ballot(group(number))
    votes = [ballot.digit(key) for key in keys]
    assert votes[:-1] == [None] * 3
    assert votes[-1] == Vote("ranking", order=tuple(ballot.shown[key - 1] for key in keys))


def test_an_unfinished_ranking_counts_as_best_only() -> None:
    ballot = Ballot(group())
    assert ballot.vote() is None
    ballot.digit(2)
    assert ballot.vote() == Vote("best", order=(ballot.shown[1],))
    ballot.digit(1)
    assert ballot.vote() == Vote("best", order=(ballot.shown[1],))
    assert ballot.meaning() == (
        "ranking: rewards 0.67 1.00 – –, all ranked sends it "
        "· Enter now: best only, rewards 0.00 1.00 0.00 0.00"
    )
    assert ballot.typed(ballot.shown[1]) == "best"
    assert ballot.typed(ballot.shown[0]) == "2."
    ballot.back()
    assert ballot.typed(ballot.shown[0]) == ""


def test_meaning_shows_rewards_by_place() -> None:
    ballot = Ballot(group())
    ballot.digit(3)
    assert "0.00 0.00 1.00 0.00" in ballot.meaning()


def test_scores_are_by_candidate_index_whatever_the_order_shown() -> None:
    ballot = Ballot(group(7))
    ballot.start("scores")
    votes = [ballot.digit(key) for key in (9, 0, 3, 6)]
    by_index = dict(zip(ballot.shown, (1.0, 0.0, 3 / 9, 6 / 9), strict=True))
    assert votes[-1] == Vote("scores", scores=tuple(by_index[index] for index in range(4)))
    assert ballot.rewards(votes[-1]) == pytest.approx([by_index[index] for index in range(4)])


def test_equal_scores_wait_for_enter_and_say_that_they_are_dead() -> None:
    ballot = Ballot(group())
    ballot.start("scores")
    assert [ballot.digit(5) for _ in range(4)] == [None] * 4
    assert "dead group" in ballot.meaning()
    assert ballot.vote() is not None
    with pytest.raises(ValueError, match="every answer is scored"):
        ballot.digit(1)


def test_the_last_answer_of_a_ranking_follows_an_equal_one() -> None:
    ballot = Ballot(group(texts=["a", "b", "c", "b"]), one_key=True)
    ballot.start("ranking")
    first, second, third = (ballot.shown.index(index) + 1 for index in (0, 1, 2))
    for key in (first, second, third):
        ballot.digit(key)
    vote = ballot.vote()
    assert vote == Vote("ranking", order=(0, 1, 3, 2))
    assert ballot.rewards(vote) == pytest.approx((1.0, 0.5, 0.0, 0.5))


def test_enter_says_what_a_half_typed_rating_lacks() -> None:
    ballot = Ballot(group(), one_key=True)
    assert ballot.lacking() == "A digit votes, without Enter"
    ballot.start("scores")
    ballot.digit(5)
    ballot.digit(5)
    assert ballot.lacking() == "2 answers lack a score"
    ballot.digit(5)
    assert ballot.lacking() == "1 answer lacks a score"


@pytest.mark.parametrize(("kind", "value"), [("tie", "0.50"), ("bad", "0.00")])
def test_tie_and_bad_warn_of_a_dead_group_before_sending(kind: str, value: str) -> None:
    ballot = Ballot(group())
    assert ballot.arm(kind) is None
    assert "dead group" in ballot.meaning()
    assert value in ballot.meaning()
    assert ballot.arm(kind) == Vote(kind)


def test_a_digit_after_tie_cancels_the_tie() -> None:
    ballot = Ballot(group())
    ballot.arm("tie")
    ballot.digit(1)
    assert ballot.vote() == Vote("best", order=(ballot.shown[0],))


def test_invalid_digits_raise_an_explanation() -> None:
    ballot = Ballot(group())
    with pytest.raises(ValueError, match="no answer 7"):
        ballot.digit(7)
    ballot.digit(1)
    with pytest.raises(ValueError, match="is ranked already"):
        ballot.digit(1)


def test_failed_candidates_cannot_be_voted_for() -> None:
    one = group()
    one.candidates[2] = Candidate(index=2, phase="failed", error="gone")
    ballot = Ballot(one)
    assert sorted(ballot.shown) == [0, 1, 3]
    votes = [ballot.digit(key) for key in (1, 2, 3)]
    assert votes[-1] is not None
    assert sorted(votes[-1].order) == [0, 1, 3]
    assert ballot.rewards(votes[-1])[2] is None


@pytest.mark.parametrize(
    ("vote", "best"),
    [
        (Vote("best", order=(2,)), 2),
        (Vote("ranking", order=(3, 0, 2)), 3),
        (Vote("scores", scores=(0.1, 0.2, 0.9)), 3),  # of 0, 2 and 3: the third has none
        (Vote("scores", scores=(0.5, 0.5, 0.5)), 3),
        (Vote("tie"), 3),
        (Vote("bad"), 3),
        (Vote("skip"), None),
    ],
)
def test_the_answer_to_correct_after_a_vote(vote: Vote, best: int | None) -> None:
    assert vote.best((3, 0, 2)) == best
    assert vote.best(()) is None


def test_the_note_contains_order_seed_and_blindness() -> None:
    ballot = Ballot(group(3))
    places = " ".join(str(index + 1) for index in ballot.shown)
    assert ballot.note() == f"blind; shown {places}; seed {seed('g0003')}"
    ballot.revealed = True
    assert ballot.note().startswith("revealed before the vote")


def test_the_rewards_of_a_vote_are_shown_for_identical_answers_too() -> None:
    ballot = Ballot(group(texts=["yes", "no", "maybe", " yes "]))
    ballot.digit(ballot.shown.index(3) + 1)
    vote = ballot.vote()
    assert vote is not None
    assert ballot.rewards(vote) == (1.0, 0.0, 0.0, 1.0)


def test_several_raters_of_one_group_see_different_orders() -> None:
    shown = set()
    for rater in ("ada", "bob", "cid", "eve"):
        several = _group_of_four(overlap=2)
        ballot = Ballot(several, rater=rater)
        assert ballot.shown == Ballot(several, rater=rater).shown
        assert sorted(ballot.shown) == [0, 1, 2, 3]
        shown.add((ballot.shown, str(ballot.attention(NOW)["seed"])))
    assert len({order for order, _ in shown}) > 1
    assert len({seed for _, seed in shown}) == 4
    alone = _group_of_four(overlap=1)
    assert Ballot(alone, rater="ada").shown == Ballot(alone, rater="bob").shown


def _group_of_four(overlap: int) -> Group:
    waits = state_of(*group_events(1, until="AWAITING_RATING")).groups["g0001"]
    waits.overlap = overlap
    return waits


def test_a_second_vote_is_reshuffled_and_sends_no_reward() -> None:
    for number in range(1, 200):
        name, order = reshuffled(f"g{number:04}", range(4))
        assert sorted(order) == [0, 1, 2, 3]
        assert order != shown_order(f"g{number:04}", range(4))
        assert name != f"g{number:04}"
    assert reshuffled("g", [0])[1] == (0,)
    ballot = Ballot(rated_state(1).groups["g0001"], second=True)
    ballot.digit(1)
    assert "Enter records it" in ballot.meaning()
    attention = ballot.attention(NOW)
    assert attention["blind"]
    assert attention["seed"] != seed("g0001")
