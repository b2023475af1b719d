"""Facts derived from the state of one group: current rewards, winner, spread, verdict."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from ajet_swarm.common.text import one_line, plural
from console.text.causes import cause_words
from console.text.format import figure
from core.scoring.advantage import ALMOST_EQUAL, is_dead, lacks_signal
from core.scoring.advantage import advantages as gains
from core.scoring.agreement import top
from core.state import Group, Rating, Server, State


def unconfirmed(group: Group) -> list[int]:
    """Return the indices of the candidates whose reward the engine has not confirmed."""
    return [candidate.index for candidate in group.candidates if candidate.phase == "unknown"]


def known_rewards(group: Group) -> list[float | None]:
    """Return the current reward of each candidate: sealed, else rated, else automatic."""
    if group.source or any(candidate.reward is not None for candidate in group.candidates):
        return [candidate.reward for candidate in group.candidates]
    rating = group.rating
    if rating is not None and rating.rewards:
        return by_candidate(rating.rewards, group)
    return [candidate.auto_reward for candidate in group.candidates]


def best_reward(group: Group) -> float | None:
    """Return the highest current reward; None without one."""
    return max((value for value in known_rewards(group) if value is not None), default=None)


def by_candidate(rewards: Sequence[float], group: Group) -> list[float | None]:
    """Assign the rewards of a rating to the candidates; only those with an answer were rated."""
    if len(rewards) == len(group.candidates):
        return list(rewards)
    remaining = iter(rewards)
    rated = set(group.answered)
    return [
        next(remaining, None) if candidate.index in rated else None
        for candidate in group.candidates
    ]


def spread_of(group: Group) -> float | None:
    """Return the highest minus the lowest current reward; None without rewards."""
    if group.spread is not None:
        return group.spread
    values = [value for value in known_rewards(group) if value is not None]
    return max(values) - min(values) if values else None


def best_of(group: Group) -> int | None:
    """Return the winner by the current rewards; in a tie, the lowest index."""
    rewards = known_rewards(group)
    values = [value for value in rewards if value is not None]
    return rewards.index(max(values)) if values else group.best


def rated_best(group: Group) -> int | None:
    """Return the candidate the operator rated best; None when no candidate stands out."""
    rating = group.rating
    if rating is None:
        return None
    if rating.rating in ("best", "ranking") and rating.order:
        return rating.order[0]
    if rating.rating == "scores" and rating.rewards and not is_dead(rating.rewards):
        values = by_candidate(rating.rewards, group)
        return values.index(max(rating.rewards))
    return None


def advantages(group: Group) -> list[float | None]:
    """Return the advantages: as sealed, else computed from the current rewards."""
    if any(candidate.advantage is not None for candidate in group.candidates):
        return [candidate.advantage for candidate in group.candidates]
    return advantages_of(known_rewards(group), group.damping)


def advantages_of(rewards: Sequence[float | None], damping: float) -> list[float | None]:
    """Return the advantages of some rewards; candidates without one have none."""
    computed = iter(gains([value for value in rewards if value is not None], damping))
    return [None if value is None else next(computed) for value in rewards]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a group contributes to training, by its current state."""

    kind: str
    """train, dead (equal or almost equal rewards), lost (aborted, failed, or discarded by the
    engine), open or none."""
    text: str

    @property
    def sign(self) -> str:
        """One character for the verdict, readable without colour."""
        return {"train": "✔", "dead": "○", "lost": "×", "open": "?", "none": "·"}[self.kind]

    @property
    def tone(self) -> str:
        """Colour variable of the verdict."""
        tones = {"train": "$reward-up", "dead": "$dead", "open": "$warning"}
        return tones.get(self.kind, "$muted")


def verdict(group: Group) -> Verdict:
    """Return `will train`, `dead: CAUSE` or `lost: CAUSE`; an open group's expected verdict.

    `verdict_in` also says whether a finished group was trained.
    """
    if group.phase in ("ABORTED", "FAILED"):
        cause = f" ({one_line(cause_words(group), 90)})" if group.cause else ""
        return Verdict("lost", f"lost: {group.phase.lower()}{cause}")
    if group.episode_type != "train":
        return Verdict("none", f"not trained on ({one_line(group.episode_type, 12)})")
    if group.sealed_at is not None:
        if group.lost:
            return Verdict("lost", f"finished, lost by {one_line(group.lost, 40)}: will not train")
        if group.dead and group.dead != ALMOST_EQUAL:
            return Verdict("dead", f"dead: {one_line(group.dead, 60)}")
        if group.phase == "DONE" and unconfirmed(group):
            return Verdict("open", "finished, not all confirmed")
        if group.dead:
            return Verdict("dead", f"teaches almost nothing: {_strength(advantages(group))}")
        return Verdict("train", "finished, will train" if group.phase == "DONE" else "will train")
    return _expected(group)


def _strength(values: Sequence[float | None]) -> str:
    """Return the largest advantage as text."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    return f"largest advantage {figure(largest)}"


_step_of = attrgetter("step")
_UNKNOWN = Verdict("none", "not known if trained")


def verdict_in(state: State, group: Group) -> Verdict:
    """Return the verdict on a group; for a finished one, what became of the update of its step.

    `trained by update 7` or `taught almost nothing` needs the figures of that update, of the engine
    run of the group, and two rewards that the server took. Otherwise it is `step 7 is over` (the
    run began a later step), `step 7 was dropped` (a later run began at that step or before it) or
    `not known if trained`.
    """
    own = verdict(group)
    faint = group.dead == ALMOST_EQUAL
    if group.phase != "DONE" or not (own.kind == "train" or (faint and own.kind == "dead")):
        return own
    server = state.servers.get(group.server)
    if server is None or group.step is None:
        return _UNKNOWN
    # Its episodes ended under the step that was read last: a sync discards claimed episodes.
    step = max([group.step, *(candidate.later_step or 0 for candidate in group.candidates)])
    result = _fate(server, group, step) or own
    taken = sum(candidate.phase == "ended" for candidate in group.candidates)
    if result.kind != "train" or result is own:
        return result
    if taken < 2:
        return _UNKNOWN
    if faint:
        strength = _strength(advantages(group))
        return Verdict("dead", f"taught almost nothing: {strength}, update {step}")
    return result


def _fate(server: Server, group: Group, step: int) -> Verdict | None:
    """Return what became of the update of the group's step; None if it is still to come."""
    steps, run = server.steps, group.engine_run
    place = bisect_left(steps, step, key=_step_of)
    recorded = place < len(steps) and steps[place].step == step
    if recorded and steps[place].engine_run == run and steps[place].update:
        return Verdict("train", f"trained by update {step}")
    later = place + recorded
    if later < len(steps) and steps[later].engine_run == run:
        return Verdict("none", f"step {step} is over")
    if server.engine_run == run:
        return _UNKNOWN if server.state in ("OFFLINE", "BOOTING") else None
    newest = steps[later - 1] if later else None  # of the steps up to the group's
    if newest is not None and newest.engine_run > run and _watched_since(server, group):
        return Verdict("none", f"step {step} was dropped")
    return _UNKNOWN


def _watched_since(server: Server, group: Group) -> bool:
    """Return whether it is certain that the group ended on this server, not on one before it."""
    began = server.spans[0].since if server.spans else None
    return began is not None and group.sealed_at is not None and began <= group.sealed_at


def _expected(group: Group) -> Verdict:
    rating = group.rating
    if rating is not None and rating.rating == "skip":
        return Verdict("lost", "lost: skipped, will be aborted")
    source = f" (your {rating.rating})" if rating is not None else ""
    values = [value for value in known_rewards(group) if value is not None]
    if group.abstained and rating is None:
        return Verdict("open", "unscored: rate it by hand")
    if not values:
        return Verdict("none", "not scored yet")
    if len(values) < 2:
        return Verdict("dead", f"dead: {plural(len(values), 'reward')} only{source}")
    if is_dead(values):
        return Verdict("dead", f"dead: equal rewards{source}")
    if lacks_signal(values, group.damping):
        strength = _strength(advantages_of(values, group.damping))
        return Verdict("dead", f"would teach almost nothing: {strength}{source}")
    return Verdict("train", f"will train{source}")


def vote_choice(group: Group, vote: Rating) -> str:
    """Return the best answers of a vote by their numbers: `2`, `1=3`, `all bad`, `tie`, `skip`."""
    if not vote.rewards:
        return "skip"
    if vote.rating in ("tie", "bad"):
        return "all bad" if vote.rating == "bad" else "tie"
    rewards = by_candidate(vote.rewards, group)
    best = top({index: reward for index, reward in enumerate(rewards) if reward is not None})
    return "=".join(str(index + 1) for index in sorted(best))


def votes_text(group: Group) -> str:
    """Return the votes of several raters: `ada 2, bob 4`."""
    return ", ".join(
        f"{one_line(vote.rater, 16) or 'no name'} {vote_choice(group, vote)}"
        for vote in group.votes
    )
