"""One group as it is exported: prompt, answers, rewards, votes, correction, provenance."""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from console.session.group_facts import advantages, by_candidate, has_answer, known_rewards
from core.events import (
    AnsweredCandidate,
    CandidateAnswered,
    CandidatesAnswered,
    GroupEdited,
    GroupOpened,
    GroupRated,
    Part,
    RatingUndone,
)
from core.journal.closed_groups import ClosedGroup
from core.reducer import reduce
from core.state import Group, State, WeightVersion

Message = dict[str, Any]


class ExportedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a group."""

    index: int
    """From 0; the console counts candidates from 1."""
    message: Message
    """The whole assistant message, as in `core.events.CandidateAnswered`."""
    finish_reason: str
    seconds: float
    prompt_tokens: int
    completion_tokens: int
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
    """Version of the weights, as text; see `core.state.weights.WeightVersion`."""


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
    """The vote that counts; None if there was none or it was undone."""
    correction: GroupEdited | None
    """The better text that a person wrote; None without one."""

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
        some = [one for one in self.candidates if one.reward is not None]
        return sorted(some, key=lambda one: -(one.reward or 0.0))


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
        correction: GroupEdited | None = None
        answers: dict[int, CandidateAnswered | AnsweredCandidate] = {}
        for event in closed.events:
            match event:
                case GroupOpened():
                    opened = event
                case CandidatesAnswered():
                    answers |= {one.index: one for one in event.candidates}
                case CandidateAnswered():
                    answers[event.index] = event
                case GroupRated():
                    vote = event
                case RatingUndone():
                    vote = None
                case GroupEdited():
                    correction = event if event.edited else None
        if opened is None:
            return None
        body = opened.body
        return ExportedGroup(
            group=group,
            opened=opened,
            prompt=_messages(body.get("messages")),
            tools=_messages(body.get("tools")),
            candidates=self._candidates(group, answers, vote),
            vote=vote,
            correction=correction,
        )

    def _reduced(self, closed: ClosedGroup) -> Group | None:
        state = self._state
        for event in closed.events:
            reduce(state, event)
        return state.groups.pop(closed.group_id, None)

    def _candidates(
        self,
        group: Group,
        answers: Mapping[int, CandidateAnswered | AnsweredCandidate],
        vote: GroupRated | None,
    ) -> list[ExportedCandidate]:
        rewards, gains = known_rewards(group), advantages(group)
        votes: Sequence[float | None] = ()
        if vote is not None and vote.rewards:
            votes = by_candidate(vote.rewards, group)
        candidates = []
        for one in group.candidates:
            answer = answers.get(one.index)
            if answer is None or not has_answer(one):
                continue
            candidates.append(
                ExportedCandidate(
                    index=one.index,
                    message=answer.message,
                    finish_reason=answer.finish_reason,
                    seconds=answer.seconds,
                    prompt_tokens=answer.prompt_tokens,
                    completion_tokens=answer.completion_tokens,
                    reward=rewards[one.index],
                    automatic=one.auto_reward,
                    human=votes[one.index] if votes else None,
                    advantage=gains[one.index],
                    parts=one.parts,
                    weights=self._weights(group, one.index),
                )
            )
        return candidates

    def _weights(self, group: Group, index: int) -> str:
        one = group.candidates[index]
        run, step = (group.run, group.step) if one.step is None else (one.run, one.step)
        name, start = self._runs.get((group.server, run), (str(run) if run else "", ""))
        version = WeightVersion(
            server=group.server, run=name, step=step, later_step=one.later_step, checkpoint=start
        )
        return version.text


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list of a request; none for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


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
    rater = vote.rater if vote is not None else ""
    return {
        "group": record.group.group_id,
        "candidates": [one.index for one in candidates],
        "weights": ", ".join(dict.fromkeys(one.weights for one in candidates)),
        "reward_version": record.group.version,
        "mode": record.mode,
        "blind": vote.blind if vote is not None else False,
        "rater": rater if names else rater_hash(rater),
        "time": utc(record.time),
    }
