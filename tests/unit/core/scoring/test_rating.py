import math

import msgspec
import pytest

from core.scoring.advantage import is_dead
from core.scoring.rating import RatingError, RatingInput, rating_rewards


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
