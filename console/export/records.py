"""One group as it is exported: prompt, answers, rewards, votes, correction, provenance."""

import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from console.session.group_facts import advantages, advantages_of, by_candidate, known_rewards
from core.events import (
    AnsweredCandidate,
    CandidatesAnswered,
    DisagreementSettled,
    Event,
    GroupClosed,
    GroupEdited,
    GroupOpened,
    GroupRated,
    Part,
    RatingUndone,
    VoteCast,
    VoteWithdrawn,
)
from core.events.rating import VoteEvent
from core.journal.reader import ClosedGroup
from core.state import Group, State, WeightVersion, apply

Message = dict[str, Any]


class ExportedCandidate(AnsweredCandidate, frozen=True, kw_only=True):
    """One answer of a group with its rewards; its index is from 0."""

    reward: float | None
    """The reward that counts: of the person who rated the group, else the automatic one."""
    automatic: float | None
    """The automatic reward."""
    human: float | None
    """The reward of the vote; None without a vote."""
    advantage: float | None
    """As sealed, else computed from the rewards."""
    parts: tuple[Part, ...]
    weights: str
    """Version of the weights, as text; see `core.state.server.WeightVersion`."""


class ExportedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One closed group with at least its request."""

    group: Group
    """State of the group at its end; its texts may be shortened."""
    opened: GroupOpened
    prompt: Sequence[Message]
    """The request's messages."""
    tools: Sequence[dict[str, Any]]
    """The request's tools; empty for none."""
    candidates: Sequence[ExportedCandidate]
    """Those with an answer, by index."""
    vote: GroupRated | None
    """The vote that counts; None if there was none or it was undone. Of several raters it is the
    mean, or the decisive vote that settled their disagreement."""
    votes: Sequence[VoteCast]
    """The newest vote of each of several raters, oldest first (`rating.overlap` above 1)."""
    settled: bool
    """A decisive vote settled the disagreement of the raters."""
    correction: GroupEdited | None
    """The better text that a person wrote; None without one."""
    late: bool
    """The vote came after the end of the group: its rewards were not sent."""

    @property
    def rated(self) -> bool:
        """Whether a person judged the answers: then their rewards come from the vote."""
        return self.vote is not None and bool(self.vote.rewards)

    @property
    def mode(self) -> str:
        """`human` if the rewards come from a vote, else `auto`."""
        return "human" if self.rated else "auto"

    @property
    def time(self) -> float:
        """Unix seconds of the judgement; of the end of the group if it was not judged."""
        group = self.group
        return group.sealed_at or group.closed_at or group.opened_at

    @property
    def scored(self) -> list[ExportedCandidate]:
        """The candidates with a reward, best first; equal rewards in the order of the group."""
        some = [candidate for candidate in self.candidates if candidate.reward is not None]
        return sorted(some, key=lambda candidate: -(candidate.reward or 0.0))


Runs = Mapping[tuple[str, int], tuple[str, str]]
"""Name and start of each training run, by server and number."""


class RecordBuilder:
    """Makes an exported group of the events of a closed group.

    Args:
        runs: Training runs of the journal.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._state = State()

    def build(self, closed: ClosedGroup) -> ExportedGroup | None:
        """Return the exported group; None if its request is not in the journal."""
        group = self._reduced(closed)
        if group is None:
            return None
        opened: GroupOpened | None = None
        vote: GroupRated | None = None
        ended = late = False
        correction: GroupEdited | None = None
        answers: dict[int, AnsweredCandidate] = {}
        for event in closed.events:
            match event:
                case GroupOpened():
                    opened = event
                case CandidatesAnswered():
                    answers |= {candidate.index: candidate for candidate in event.candidates}
                case GroupClosed():
                    ended = True
                case GroupRated():
                    vote, late = event, ended
                case RatingUndone():
                    vote, late = None, False
                case GroupEdited():
                    correction = event if event.edited else None
        if opened is None:
            return None
        votes, decision = _several_votes(closed.events)
        if decision is not None and decision.sent:
            vote, late = _as_rating(decision), True
        body = opened.body
        return ExportedGroup(
            group=group,
            opened=opened,
            prompt=_messages(body.get("messages")),
            tools=_messages(body.get("tools")),
            candidates=self._candidates(group, answers, vote, late=late),
            vote=vote,
            votes=votes,
            settled=decision is not None,
            correction=correction,
            late=late,
        )

    def _reduced(self, closed: ClosedGroup) -> Group | None:
        state = self._state
        for event in closed.events:
            apply(state, event)
        return state.groups.pop(closed.group_id, None)

    def _candidates(
        self,
        group: Group,
        answers: Mapping[int, AnsweredCandidate],
        vote: GroupRated | None,
        *,
        late: bool,
    ) -> list[ExportedCandidate]:
        """Return the candidates; a late vote replaces the rewards that were sent."""
        rewards, gains = known_rewards(group), advantages(group)
        votes: Sequence[float | None] = ()
        if vote is not None and vote.rewards:
            votes = by_candidate(vote.rewards, group)
            if late:
                rewards, gains = list(votes), advantages_of(votes, group.damping)
        candidates = []
        for candidate in group.candidates:
            answer = answers.get(candidate.index)
            if answer is None or not candidate.has_answer:
                continue
            candidates.append(
                ExportedCandidate(
                    **msgspec.structs.asdict(answer),
                    reward=rewards[candidate.index],
                    automatic=candidate.auto_reward,
                    human=votes[candidate.index] if votes else None,
                    advantage=gains[candidate.index],
                    parts=candidate.parts,
                    weights=self._weights(group, candidate.index),
                )
            )
        return candidates

    def _weights(self, group: Group, index: int) -> str:
        candidate = group.candidates[index]
        run, step = (
            (group.run, group.step) if candidate.step is None else (candidate.run, candidate.step)
        )
        name, start = self._runs.get((group.server, run), (str(run) if run else "", ""))
        version = WeightVersion(
            server=group.server,
            run=name,
            step=step,
            later_step=candidate.later_step,
            checkpoint=start,
        )
        return version.text


def _several_votes(
    events: Iterable[Event],
) -> tuple[list[VoteCast], DisagreementSettled | None]:
    """Return the newest vote of each of several raters, and the newest decisive vote."""
    votes: list[VoteCast] = []
    decision: DisagreementSettled | None = None
    for event in events:
        if isinstance(event, VoteCast | VoteWithdrawn):
            votes = [vote for vote in votes if not _same_rater(vote, event)]
            votes += [event] if isinstance(event, VoteCast) else []
        elif isinstance(event, DisagreementSettled):
            decision = event
    return votes, decision


def _same_rater(vote: VoteCast, other: VoteCast | VoteWithdrawn) -> bool:
    """Return whether two events are of the same rater, as in `core.state.Rating.by`."""
    if vote.rater and other.rater:
        return vote.rater == other.rater
    return vote.holder == other.holder


def _as_rating(decision: DisagreementSettled) -> GroupRated:
    """Return the decisive vote on a group that was sent before as the vote that counts."""
    fields = {name: getattr(decision, name) for name in VoteEvent.__struct_fields__}
    return GroupRated(**fields)


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list of a request; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def utc(at: float) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds.

    Args:
        at: Unix seconds.
    """
    when = dt.datetime.fromtimestamp(at, dt.UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def rater_hash(name: str) -> str:
    """Return a stable pseudonym of a rater; empty for votes without a name.

    It hides the name from a casual look only: whoever guesses a name can compute its pseudonym.
    """
    return "rater-" + hashlib.sha256(name.encode()).hexdigest()[:12] if name else ""


def rater_text(vote: VoteEvent, *, names: bool) -> str:
    """Return the rater of a vote, or the raters of a mean: their names or pseudonyms."""
    raters = vote.raters if isinstance(vote, GroupRated) and vote.raters else (vote.rater,)
    return ", ".join(rater if names else rater_hash(rater) for rater in raters)


def provenance(
    record: ExportedGroup, candidates: Sequence[ExportedCandidate], *, names: bool
) -> dict[str, Any]:
    """Return where a row comes from. All values have the same type in each row.

    Args:
        record: The group.
        candidates: The answers in the row.
        names: Whether to name the rater.
    """
    vote = record.vote if record.rated else None
    rater = rater_text(vote, names=names) if vote is not None else ""
    return {
        "group": record.group.group_id,
        "candidates": [candidate.index for candidate in candidates],
        "weights": ", ".join(dict.fromkeys(candidate.weights for candidate in candidates)),
        "reward_version": record.group.version,
        "mode": record.mode,
        "blind": vote.blind if vote is not None else False,
        "rater": rater,
        "time": utc(record.time),
    }
