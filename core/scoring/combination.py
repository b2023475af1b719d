"""Combination of the votes of several raters on one group."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class JudgedVote(Protocol):
    """A vote with its rewards."""

    @property
    def rating(self) -> str: ...
    @property
    def order(self) -> tuple[int, ...]: ...
    @property
    def scores(self) -> tuple[float, ...]: ...
    @property
    def rewards(self) -> tuple[float, ...]:
        """By answered candidate; empty for a skip."""
        ...


class Combined(NamedTuple):
    """The combination of some votes, with the fields of a vote."""

    rating: str
    order: tuple[int, ...]
    scores: tuple[float, ...]
    rewards: tuple[float, ...]


def combine(votes: Sequence[JudgedVote]) -> Combined:
    """Return the combination: the mean of the rewards of each candidate.

    A skip judges nothing and is left out; skips alone remain a skip. Votes of the same kind with
    the same rewards remain that vote; different ones become `scores`.

    Args:
        votes: At least one, of the same candidates.
    """
    judging = [vote for vote in votes if vote.rewards]
    if not judging:
        return Combined("skip", (), (), ())
    first = judging[0]
    if all((vote.rating, vote.rewards) == (first.rating, first.rewards) for vote in judging):
        return Combined(first.rating, first.order, first.scores, first.rewards)
    mean = tuple(
        sum(rewards) / len(judging)
        for rewards in zip(*[vote.rewards for vote in judging], strict=True)
    )
    return Combined("scores", (), mean, mean)
