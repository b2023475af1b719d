"""The ballot: a rating while it is typed, with the order shown, the keys and their meaning.

Keys refer to *places* on screen, votes to candidates. The places are shuffled by a seed derived
from the group's id, so that a group is always shown in the same order; seed and order are recorded
with the vote. A second vote on a group uses another order.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from console.text.format import number
from core.scoring.advantage import is_dead
from core.scoring.rating import Kind, RatingInput, rating_rewards
from core.state import Group

DIGITS = 9
"""Most places that a digit can name."""
NO_WINNER = frozenset({"tie", "bad"})
"""Ratings without a best answer: the one that should have been given is asked for."""
TOP_SCORE = 9
"""The score key that stands for 1."""


@dataclass(frozen=True, slots=True)
class Vote:
    """A rating that can be sent; indices are those of the candidates."""

    rating: str
    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()

    def args(self) -> dict[str, object]:
        """Return it as arguments of its command."""
        given = {"rating": self.rating, "order": list(self.order), "scores": list(self.scores)}
        return {name: value for name, value in given.items() if value}

    def best(self, shown: Sequence[int]) -> int | None:
        """Return the best answer; of several the first of `shown`, and None for a skip."""
        if self.rating == "skip" or not shown:
            return None
        if self.scores:
            by_index = dict(zip(sorted(shown), self.scores, strict=True))
            return max(shown, key=by_index.__getitem__)
        return self.order[0] if self.order else shown[0]


def shown_order(group_id: str, indices: Sequence[int]) -> tuple[int, ...]:
    """Return the candidates by place, shuffled by the group's own seed."""
    return tuple(sorted(indices, key=lambda index: _hash(f"{group_id}:{index}")))


def reshuffled(group_id: str, indices: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """Return another seed and its order for a second vote."""
    name, first = group_id, shown_order(group_id, indices)
    order = first
    for attempt in range(1, 32):
        name = f"{group_id}:again{attempt}"
        order = shown_order(name, indices)
        if order != first:
            break
    return name, order


def seed(group_id: str) -> str:
    """Return the seed of the order shown, for the record."""
    return _hash(group_id)[:8]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Ballot:
    """The unsent rating of one group.

    Attributes:
        shown: Candidate index at each place.
        one_key: Whether a digit alone is a vote; the other ratings are then opened, and need Enter.
        ranking: Whether a ranking is open, with `one_key`; its last digit is not typed.
        scoring: Whether digits are scores, one per candidate, instead of ranks.
        armed: A rating that needs a second key press because it teaches nothing: tie or bad; with
            `one_key` that press is Enter.
        revealed: Whether the rewards were shown before the vote.
        tags: Reasons recorded with the vote.
        base: Index of the candidate that the others are compared with; None for none.
        bounds: Rewards of the lowest and the highest score.
    """

    def __init__(
        self,
        group: Group,
        *,
        second: bool = False,
        late: bool = False,
        one_key: bool = False,
        bounds: tuple[float, float] = (0.0, 1.0),
        now: float = 0.0,
        rater: str = "",
    ) -> None:
        """`rater` is a rater or console: several raters of one group see different orders."""
        self.group_id = group.group_id
        self.n = max(group.n, len(group.candidates))
        self.second = second
        """Whether the group was rated and sent before, so that this vote only checks the first."""
        self.trains = not (second or late)
        """Whether its rewards are sent; those of a late vote on the inbox are only recorded."""
        self.one_key = one_key
        self.bounds = bounds
        if second:
            eligible = [
                candidate.index for candidate in group.candidates if candidate.reward is not None
            ]
            self._seed_text, self.shown = reshuffled(group.group_id, eligible)
        else:
            several = group.overlap > 1 and bool(rater)
            self._seed_text = f"{group.group_id}:by {rater}" if several else group.group_id
            self.shown = shown_order(self._seed_text, group.answered)
        self._same = group.same_answers(sorted(self.shown))
        self.ranking = False
        self.scoring = False
        self.armed = ""
        self.revealed = False
        self.tags: tuple[str, ...] = ()
        self.base: int | None = None
        self.shown_at = now
        self.first_key_at: float | None = None
        self._order: list[int] = []
        self._scores: list[int] = []

    @property
    def empty(self) -> bool:
        """Whether nothing was typed."""
        return not (self._order or self._scores or self.armed)

    def fits(self, group: Group) -> bool:
        """Return whether the group still has the answers that are shown."""
        return self.second or sorted(self.shown) == group.answered

    def record_key(self, now: float) -> None:
        """Record a key."""
        if self.first_key_at is None:
            self.first_key_at = now

    # --- keys --------------------------------------------------------------------------------

    def digit(self, key: int) -> Vote | None:
        """Type a digit; return the vote when that completes it, else None.

        Raises:
            ValueError: the digit is invalid here; the message says why.
        """
        if self.one_key and self.armed:
            raise ValueError(f"{self.armed} is open: Enter sends it, Esc closes it")
        self.armed = ""
        return self._score(key) if self.scoring else self._rank(key)

    def _rank(self, key: int) -> Vote | None:
        if not 1 <= key <= min(len(self.shown), DIGITS):
            raise ValueError(f"there is no answer {key} to vote for")
        index = self.shown[key - 1]
        if self.one_key and not self.ranking:
            self._order = [index]
            return self.vote()
        if index in self._ranks:
            raise ValueError(f"{key} is ranked already; Backspace removes the last one")
        self._order.append(index)
        is_last = len(self._order) == len(self.shown)
        return self.vote() if is_last and not self.one_key else None

    @property
    def _ranks(self) -> list[int]:
        """The answers in the order typed; in an open ranking the last one follows by itself, after
        an equal one if there is any."""
        rest = [index for index in self.shown if index not in self._order]
        if not self.ranking or len(rest) != 1:
            return self._order
        same = dict(zip(sorted(self.shown), self._same, strict=True))
        twins = [rank for rank, index in enumerate(self._order) if same[index] == same[rest[0]]]
        rank = twins[-1] + 1 if twins else len(self._order)
        return [*self._order[:rank], *rest, *self._order[rank:]]

    def _score(self, key: int) -> Vote | None:
        if len(self._scores) == len(self.shown):
            raise ValueError("every answer is scored; Enter sends, Backspace removes one")
        self._scores.append(key)
        vote = self.vote()
        sends = vote is not None and not self.one_key and not is_dead(vote.scores)
        return vote if sends else None

    def back(self) -> None:
        """Delete the last key."""
        if self.armed:
            self.armed = ""
        elif self.scoring and self._scores:
            self._scores.pop()
        elif self.scoring:
            self.scoring = False
        elif self._order:
            self._order.pop()
        else:
            self.ranking = False

    def clear(self) -> None:
        """Delete all keys."""
        self.armed = ""
        self.ranking = self.scoring = False
        self._order.clear()
        self._scores.clear()

    def start(self, kind: Literal["ranking", "scores"]) -> None:
        """Make the next digits ranks or scores."""
        self.clear()
        self.ranking, self.scoring = kind == "ranking", kind == "scores"

    def arm(self, rating: str) -> Vote | None:
        """Type tie or bad: the first press explains it, the second returns the vote, unless Enter
        has to send it."""
        if self.armed == rating and not self.one_key:
            return Vote(rating)
        self.clear()
        self.armed = rating
        return None

    # --- what it means -----------------------------------------------------------------------

    def vote(self) -> Vote | None:
        """Return the vote that Enter would send; None for none."""
        if self.armed:
            return Vote(self.armed)
        if self.scoring:
            if len(self._scores) != len(self.shown):
                return None
            by_index = dict(zip(self.shown, self._scores, strict=True))
            scores = tuple(self._reward(by_index[index]) for index in sorted(by_index))
            return Vote("scores", scores=scores)
        if not self._order:
            return None
        if len(self._ranks) == len(self.shown) > 1:
            return Vote("ranking", order=tuple(self._ranks))
        return Vote("best", order=(self._order[0],))

    def typed(self, index: int) -> str:
        """Return the label typed for a candidate: its rank, its score, or ""."""
        if self.scoring:
            place = self.shown.index(index) if index in self.shown else len(self._scores)
            return f"={self._scores[place]}" if place < len(self._scores) else ""
        if index not in self._ranks:
            return ""
        rank = self._ranks.index(index) + 1
        return "best" if rank == 1 else f"{rank}."

    def _reward(self, key: int) -> float:
        low, high = self.bounds
        return low + (high - low) * key / TOP_SCORE

    def meaning(self) -> str:
        """Return what the vote teaches that Enter would send; for an empty ballot, what a digit
        does, and the other keys."""
        vote = self.vote()
        if vote is None:
            return self._next_key()
        sends = "sends it" if self.trains else "records it"
        sends += ", Esc closes" if self.one_key else ""
        rewards = self.rewards(vote)
        values = " ".join(number(rewards[index]) for index in self.shown)
        if is_dead([value for value in rewards if value is not None]):
            name = {"tie": "tie", "bad": "all bad"}.get(vote.rating, "equal scores")
            return f"{name}: rewards {values} → a dead group, no signal. Enter {sends}"
        if vote.rating == "best" and (self.ranking or len(self._order) > 1):
            return f"{self._so_far()} · Enter now: best only, rewards {values}"
        return f"{vote.rating}: rewards {values}. Enter {sends}"

    def _so_far(self) -> str:
        """Return `ranking: rewards – 1.00 0.67 –, ...`: the rewards typed so far."""
        rest = [index for index in self.shown if index not in self._order]
        rewards = self.rewards(Vote("ranking", order=(*self._order, *rest)))
        figures = [number(rewards[index]) if index in self._order else "–" for index in self.shown]
        done = (
            f"{len(self.shown) - 1} digits complete it" if self.ranking else "all ranked sends it"
        )
        return f"ranking: rewards {' '.join(figures)}, {done}"

    def rewards(self, vote: Vote) -> tuple[float | None, ...]:
        """Return the rewards of a vote by candidate index; None for one without an answer."""
        eligible, rewards = sorted(self.shown), cast(tuple[float | None, ...], vote.scores)
        if vote.rating != "scores":
            places = tuple(eligible.index(index) for index in vote.order)
            rated = RatingInput(cast(Kind, vote.rating), places)
            rewards = rating_rewards(rated, len(eligible), self.bounds, self._same)
        by_index = dict(zip(eligible, rewards, strict=True))
        return tuple(by_index.get(index) for index in range(self.n))

    def _next_key(self) -> str:
        if self.scoring:
            place, (low, high) = len(self._scores) + 1, self.bounds
            if not self._scores:
                prompt = f"a digit for answer {place}, 0 is worst, 9 is best"
                return f"scores: {prompt} (sent as {low:g} to {high:g})"
            figures = [number(self._reward(key)) for key in self._scores]
            figures += ["–"] * (len(self.shown) - len(figures))
            last = "Enter sends" if self.one_key else "the last sends"
            return f"scores: rewards {' '.join(figures)} · a digit for answer {place}; {last}"
        many = min(len(self.shown), DIGITS)
        if not many:
            return "no answer can be rated"
        if self.ranking:
            last = f"{len(self.shown) - 1} digits complete it, Enter sends"
            return f"ranking: the best one's digit, then the next ones; {last}, Esc closes"
        if self.one_key:
            return f"{self._one_key_teaches(many)} · > rank, s score, t tie, b bad, k skip"
        keys = f"1-{many} best, more digits a ranking, s scores, t tie, b all bad, k skip"
        return f"shuffled: {keys}" if many > 1 else keys

    def _one_key_teaches(self, many: int) -> str:
        """Return what a digit alone does: `1-4 votes: reward 1, others 0`."""
        digits = f"1-{many}" if many > 1 else "1"
        verb = "votes" if self.trains else "records"
        if len(set(self._same)) < 2:
            return f"{digits} {verb}: equal rewards, no signal"
        first = "1, equal ones 1" if len(set(self._same)) < len(self._same) else "reward 1"
        return f"{digits} {verb}: {first}, others 0"

    def lacking(self) -> str:
        """Return why Enter sends nothing."""
        if self.scoring:
            left = len(self.shown) - len(self._scores)
            return "1 answer lacks a score" if left == 1 else f"{left} answers lack a score"
        if self.ranking:
            return "The ranking lacks its first digit"
        return "A digit votes, without Enter"

    def note(self) -> str:
        """Return how the vote was cast, for the record: `blind; shown 3 1 4 2; seed 5f3a9c21`."""
        places = " ".join(str(index + 1) for index in self.shown)
        how = "revealed before the vote" if self.revealed else "blind"
        return f"{how}; shown {places}; seed {seed(self._seed_text)}"

    def attention(self, now: float) -> dict[str, object]:
        """Return how the vote was cast, as arguments of its command."""
        args: dict[str, object] = {
            "shown": list(self.shown),
            "looked": round(max(0.0, now - self.shown_at), 2),
            "seed": seed(self._seed_text),
            "blind": not self.revealed,
        }
        if self.first_key_at is not None:
            args["first_key"] = round(max(0.0, self.first_key_at - self.shown_at), 2)
        if self.tags:
            args["tags"] = list(self.tags)
        return args
