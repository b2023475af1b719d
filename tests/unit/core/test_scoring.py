"""Scores of a group: advantages, agreement of raters, ratings."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.screens.rate.raters.text import part_lines
from core.events import (
    CandidateScore,
    Event,
    GroupEdited,
    GroupLeased,
    GroupRated,
    GroupScored,
    GroupSealed,
    Part,
    RatingRepeated,
    RewardPart,
    RewardsChanged,
    SentReward,
    decode,
    encode,
)
from core.scoring.advantage import ALMOST_EQUAL, advantages, is_dead, is_faint, lacks_signal
from core.scoring.agreement import agree, only_top, top, wilson
from core.scoring.rating import RatingError, RatingInput, rating_rewards
from core.state import TEXT_CAP
from tests.support.sample import NOW, group_events, state_of

SHAPES = ((1, 0), (1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (1, 0.5, 0.25, 0), (1, *(0,) * 31))
EMBEDDED = 0.2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_spread_of_two_hundredths_teaches_almost_nothing(shape: tuple[float, ...]) -> None:
    rewards = [0.5 + 0.02 * place for place in shape]
    assert lacks_signal(rewards, EMBEDDED) == ALMOST_EQUAL
    assert lacks_signal([0.5 + 0.2 * place for place in shape], EMBEDDED) == ""


@pytest.mark.parametrize("shape", SHAPES)
def test_without_damping_any_difference_teaches_in_full(shape: tuple[float, ...]) -> None:
    rewards = [0.5 + 1e-4 * place for place in shape]
    assert lacks_signal(rewards, 0.0) == ""
    assert max(map(abs, advantages(rewards, 0.0))) >= 1 - 1e-6


def test_causes_of_groups_without_a_signal() -> None:
    assert lacks_signal([0.3], EMBEDDED) == "a single candidate"
    assert lacks_signal([0.1 + 0.2, 0.3, 0.3], EMBEDDED) == "equal rewards"
    assert is_faint([])
    assert not is_faint([0.1, -0.1])


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(31, 42, 0.5893, 0.8470), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (0, 0, 0.0, 1.0)],
)
def test_wilson_is_the_published_interval(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.slow
@given(st.integers(1, 400), st.data())
def test_the_wilson_interval_contains_the_share_and_shrinks(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    low, high = wilson(hits, n)
    assert 0.0 <= low <= hits / n <= high <= 1.0
    wider = wilson(hits, n)
    narrow = wilson(hits * 4, n * 4)
    assert narrow[1] - narrow[0] < wider[1] - wider[0]


def test_top_and_agreement() -> None:
    assert top({0: 0.1, 1: 0.9, 2: 0.9}) == {1, 2}
    assert only_top({0: 0.1, 1: 0.9, 2: 0.9}) is None
    assert only_top({0: 0.1, 3: 0.9}) == 3
    assert only_top({}) is None
    assert agree({0: 1.0, 1: 0.0}, {0: 0.8, 1: 0.3})
    assert not agree({0: 1.0, 1: 0.0}, {0: 0.2, 1: 0.3})
    tie, bad = {0: 0.5, 1: 0.5}, {0: 0.0, 1: 0.0}
    assert agree(tie, dict(tie))
    assert not agree(tie, bad)


def voted(
    number: int,
    best: int,
    *,
    blind: bool = True,
    rater: str = "ann",
    source: str = "human",
    command_line: bool = False,
) -> list[Event]:
    """A group that was rated and sent; the automatic rewards put 1 first; 2 stood first."""
    rewards = tuple(
        SentReward(index=index, reward=float(index == best), advantage=0.0) for index in range(4)
    )
    names: dict[str, Any] = {"group_id": f"g{number:04}", "server": "embedded"}
    return [
        *group_events(number, until="AWAITING_RATING"),
        GroupRated(
            **names,
            rating="best",
            order=(best,),
            rewards=tuple(reward.reward for reward in rewards),
            rater=rater,
            blind=blind and not command_line,
            shown=() if command_line else (2, 1, 3, 0) if blind else (0, 1, 2, 3),
            tags=("wrong",),
        ),
        GroupSealed(**names, rewards=rewards, best=best, source=source),
    ]


def test_votes_count_when_they_are_sealed_and_only_blind_ones_for_agreement() -> None:
    state = state_of(
        *voted(1, best=1), *voted(2, best=2), *voted(3, best=0, blind=False), *voted(4, 1, rater="")
    )
    ann = state.raters["ann"]
    assert (ann.votes, ann.placed, ann.judged, ann.agreed, ann.first) == (3, 2, 2, 1, 1)
    assert ann.first_chance == ann.agreed_chance == pytest.approx(0.5)
    assert state.raters[""].votes == 1
    assert state.groups["g0001"].rating is not None
    assert state.groups["g0001"].rating.tags == ("wrong",)
    unsent = state_of(*voted(1, best=1, source="auto")).raters["ann"]
    assert (unsent.votes, unsent.cast) == (0, 1)


def test_votes_of_the_command_line_count_for_agreement_and_not_for_place() -> None:
    state = state_of(*voted(1, best=1, command_line=True), *voted(2, best=2, command_line=True))
    ann = state.raters["ann"]
    assert (ann.votes, ann.placed, ann.judged, ann.agreed, ann.first) == (2, 0, 2, 1, 0)
    assert ann.agreed_chance == pytest.approx(0.5)


def test_agreement_is_counted_for_each_part_of_the_rewards() -> None:
    def parts(number: int) -> list[Event]:
        result: list[Event] = []
        for event in voted(number, best=3):
            if isinstance(event, GroupScored):
                scores = tuple(
                    CandidateScore(
                        index=score.index,
                        reward=score.reward,
                        parts=(
                            Part("helpful", float(score.index == 3), 0.0),  # a judge that is shown
                            Part("length", float(score.index == number % 4), 0.5),
                            Part("finished", 1.0, gate=True),  # it distinguishes nothing
                            Part("split", score.index / 4, 0.0),  # a note of the judge
                        ),
                    )
                    for score in event.scores
                )
                event = msgspec.structs.replace(event, scores=scores)
            result.append(event)
        return result

    model = (RewardPart(name="helpful", kind="judge"), RewardPart(name="length", kind="length"))
    changed = RewardsChanged(source="f", ok=True, version="v", parts=model)
    state = state_of(changed, *(event for number in range(1, 5) for event in parts(number)))
    result = state.raters["ann"].parts
    assert {name: (event.judged, event.agreed) for name, event in result.items()} == {
        "helpful": (4, 4),
        "length": (4, 1),
    }
    assert result["length"].chance == pytest.approx(1.0)
    lines = ["".join(text for text, _ in line) for line in part_lines(result)]
    assert lines[0].startswith("  helpful")
    assert "4 of 4, 100 %" in lines[0]
    assert lines[1].rstrip().endswith("by chance 25 %")


def test_repeats_leases_and_corrections_change_no_reward() -> None:
    names: dict[str, Any] = {"group_id": "g0001", "server": "embedded"}
    lease = GroupLeased(**names, holder="h1", rater="bob", until=NOW + 20)
    repeat = RatingRepeated(**names, rating="best", order=(1,), agrees=True, rater="ann")
    edited = GroupEdited(**names, index=1, edited="x" * (TEXT_CAP + 5), rater="ann")
    for event in (lease, repeat, edited):
        assert decode(encode(event)) == event
    state = state_of(*voted(1, best=1), repeat, edited)
    group = state.groups["g0001"]
    assert group.repeated
    assert (group.edited_index, len(group.edited)) == (1, TEXT_CAP)
    assert [candidate.reward for candidate in group.candidates] == [0.0, 1.0, 0.0, 0.0]
    assert (state.raters["ann"].repeats, state.raters["ann"].repeated) == (1, 1)

    waits = group_events(1, until="AWAITING_RATING")
    state = state_of(*waits, lease)
    held = state.groups["g0001"].lease
    assert held is not None
    assert held.of_another("h2", NOW)
    assert not held.of_another("h1", NOW)
    assert not held.of_another("h2", NOW + 21)
    theirs = GroupLeased(**names, holder="h2")
    assert state_of(*waits, lease, theirs).groups["g0001"].lease is not None
    released = GroupLeased(**names, holder="h1")
    assert state_of(*waits, lease, released).groups["g0001"].lease is None
    rated = GroupRated(**names, rating="tie", rater="bob")
    assert state_of(*waits, lease, rated).groups["g0001"].lease is None


@pytest.mark.parametrize(
    ("rating", "expected"),
    [
        (RatingInput("best", order=(2,)), (0.0, 0.0, 1.0)),
        (RatingInput("ranking", order=(2, 0, 1)), (0.5, 0.0, 1.0)),
        (RatingInput("scores", scores=(0.1, 1, 0)), (0.1, 1.0, 0.0)),
        (RatingInput("tie"), (0.5, 0.5, 0.5)),
        (RatingInput("bad"), (0.0, 0.0, 0.0)),
        (RatingInput("skip"), (None, None, None)),
    ],
)
def test_rating_becomes_rewards(rating: RatingInput, expected: tuple[float | None, ...]) -> None:
    assert rating_rewards(rating, 3) == expected


@pytest.mark.parametrize(
    ("rating", "same", "expected"),
    [
        (RatingInput("best", order=(3,)), (0, 1, 2, 0), (1.0, 0.0, 0.0, 1.0)),
        (RatingInput("best", order=(1,)), (0, 1, 2, 0), (0.0, 1.0, 0.0, 0.0)),
        (RatingInput("best", order=(1,)), (0, 0, 0, 0), (1.0, 1.0, 1.0, 1.0)),
        (RatingInput("ranking", order=(3, 1, 0, 2)), (0, 1, 2, 0), (2 / 3, 2 / 3, 0.0, 2 / 3)),
        (RatingInput("scores", scores=(0.1, 0, 1, 0.3)), (0, 1, 2, 0), (0.1, 0.0, 1.0, 0.3)),
    ],
)
def test_identical_answers_get_the_same_reward(
    rating: RatingInput, same: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    assert rating_rewards(rating, 4, same=same) == pytest.approx(expected)


def test_a_ranking_of_one_and_of_four() -> None:
    assert rating_rewards(RatingInput("ranking", order=(0,)), 1) == (1.0,)
    four = rating_rewards(RatingInput("ranking", order=(3, 2, 1, 0)), 4)
    assert four == pytest.approx((0.0, 1 / 3, 2 / 3, 1.0))


@pytest.mark.parametrize("kind", ["tie", "bad"])
def test_equal_ratings_are_dead(kind: str) -> None:
    rewards = rating_rewards(msgspec.convert({"kind": kind}, RatingInput), 4)
    assert is_dead([reward for reward in rewards if reward is not None])


def test_bounds_are_the_settings() -> None:
    scores = RatingInput("scores", scores=(-1.0, 5.0))
    assert rating_rewards(scores, 2, (-1.0, 5.0)) == (-1.0, 5.0)
    with pytest.raises(RatingError) as caught:
        rating_rewards(scores, 2)
    assert caught.value.where == "rating.scores[0]"


@pytest.mark.parametrize(
    ("rating", "field"),
    [
        (RatingInput("best"), "rating.order"),
        (RatingInput("best", order=(0, 1)), "rating.order"),
        (RatingInput("best", order=(3,)), "rating.order"),
        (RatingInput("best", order=(-1,)), "rating.order"),
        (RatingInput("ranking", order=(0, 1)), "rating.order"),
        (RatingInput("ranking", order=(0, 1, 1)), "rating.order"),
        (RatingInput("scores", scores=(1.0,)), "rating.scores"),
        (RatingInput("scores", scores=(1.0, 0.0, math.nan)), "rating.scores[2]"),
        (RatingInput("scores", scores=(1.0, math.inf, 0.0)), "rating.scores[1]"),
        (RatingInput("scores", order=(1,), scores=(1, 0, 0)), "rating.order"),
        (RatingInput("tie", scores=(1, 1, 1)), "rating.scores"),
        (RatingInput("skip", order=(0,)), "rating.order"),
    ],
)
def test_an_invalid_rating_names_its_field(rating: RatingInput, field: str) -> None:
    with pytest.raises(RatingError) as caught:
        rating_rewards(rating, 3)
    assert caught.value.where == field


def test_no_candidates() -> None:
    with pytest.raises(RatingError):
        rating_rewards(RatingInput("tie"), 0)


def test_unknown_kinds_and_fields_do_not_decode() -> None:
    for raw in (b'{"kind":"great"}', b'{"kind":"tie","extra":1}', b'{"kind":"best","order":[0.5]}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(raw, type=RatingInput)
