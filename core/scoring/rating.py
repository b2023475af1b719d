"""Conversion of the operator's rating to rewards, as described in `docs/guide/rating.md`.

The rating screen uses it to show the rewards of a vote, the proxy to send them.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from ajet_swarm.common.errors import AjetError

Kind = Literal["best", "ranking", "scores", "tie", "bad", "skip"]


class RatingError(AjetError):
    """A rating does not fit its group; `where` names the field."""


class RatingInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The operator's rating of one group."""

    kind: Kind
    order: tuple[int, ...] = ()
    """Candidate indices from 0, best first: one for `best`, all for `ranking`, else empty."""
    scores: tuple[float, ...] = ()
    """One number per candidate for `scores`, else empty."""


def rating_rewards(
    rating: RatingInput,
    n: int,
    bounds: tuple[float, float] = (0.0, 1.0),
    same: Sequence[int] = (),
) -> tuple[float | None, ...]:
    """Return the rewards of a group's candidates for one rating.

    A vote names one of several identical answers: all of them get 1 for `best`, and the mean of
    their rewards for `ranking`, else the policy would unlearn the answer that the rater preferred.

    | kind    | rewards |
    |---------|---------|
    | best    | 1 for the best candidate, 0 for the others |
    | ranking | evenly spaced from 1 (first) to 0 (last); a single candidate gets 1 |
    | scores  | the scores themselves, which must be within `bounds` |
    | tie     | 0.5 for all ("no preference"): equal, so the group is dead |
    | bad     | 0 for all: equal, so the group is dead |
    | skip    | None for all: nothing is sent, the group is aborted |

    Args:
        rating: The rating.
        n: Number of candidates.
        bounds: Lowest and highest valid score.
        same: For each candidate the index of the first one with the same answer, as from
            `core.state.Group.same_answers`; empty if all answers differ.

    Raises:
        RatingError: a field does not fit the kind of rating or the group.
    """
    _check(rating, n, bounds)
    same = same or range(n)
    match rating.kind:
        case "best":
            best = same[rating.order[0]]
            return tuple(1.0 if place == best else 0.0 for place in same)
        case "ranking":
            steps = max(n - 1, 1)
            ranked = [1.0 - rating.order.index(index) / steps for index in range(n)]
            return tuple(_mean(ranked, same, place) for place in same)
        case "scores":
            return tuple(float(score) for score in rating.scores)
        case "tie":
            return (0.5,) * n
        case "bad":
            return (0.0,) * n
        case "skip":
            return (None,) * n


def _mean(rewards: Sequence[float], same: Sequence[int], first: int) -> float:
    """Return the mean reward of the candidates whose answer is that of `first`."""
    equal = [reward for reward, place in zip(rewards, same, strict=True) if place == first]
    return sum(equal) / len(equal)


def _check(rating: RatingInput, n: int, bounds: tuple[float, float]) -> None:
    if n < 1:
        raise RatingError("the group has no candidates to rate", "rating")
    if rating.kind == "best":
        if len(rating.order) != 1 or not 0 <= rating.order[0] < n:
            raise RatingError(
                f"`best` names one candidate, got {_one_based(rating.order)}",
                "rating.order",
                f"Name one from 1 to {n}",
            )
    elif rating.kind == "ranking":
        if sorted(rating.order) != list(range(n)):
            raise RatingError(
                f"a ranking names each candidate once, got {_one_based(rating.order)}",
                "rating.order",
                f"Put 1 to {n} in order, best first",
            )
    elif rating.order:
        raise RatingError(f"`{rating.kind}` takes no order", "rating.order", "Leave it out")
    if rating.kind == "scores":
        _check_scores(rating.scores, n, bounds)
    elif rating.scores:
        raise RatingError(f"`{rating.kind}` takes no scores", "rating.scores", "Leave them out")


def _one_based(order: tuple[int, ...]) -> str:
    """Return candidate indices as text, counted from 1."""
    return ", ".join(str(index + 1) for index in order) or "none"


def _check_scores(scores: tuple[float, ...], n: int, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if len(scores) != n:
        raise RatingError(
            f"{len(scores)} scores for {n} candidates", "rating.scores", "Give one for each"
        )
    for index, score in enumerate(scores):
        if not (math.isfinite(score) and low <= score <= high):
            raise RatingError(
                f"{score} is outside {low:g} to {high:g}",
                f"rating.scores[{index}]",
                "Type a number within the bounds",
            )
