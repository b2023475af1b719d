"""State of one group: its candidates, votes and leases."""

from collections.abc import Sequence
from typing import Any

import msgspec

from core.events.group import Part
from core.scoring.agreement import disagree

OPEN_PHASES = frozenset(
    {"QUEUED", "CLAIMING", "GENERATING", "SCORING", "AWAITING_RATING", "SUBMITTING"}
)

SEALED_PHASES = frozenset({"SUBMITTING", "DONE", "ABORTED", "FAILED"})
"""Phases in which a rating has no effect."""


class Rating(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rating of a group: one person's vote, or the combination of several votes."""

    rating: str
    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    rater: str = ""
    note: str = ""
    at: float = 0.0
    tags: tuple[str, ...] = ()
    blind: bool = False
    shown: tuple[int, ...] = ()
    """Candidate index at each place of the screen."""
    holder: str = ""
    """Console of the vote, as in a lease; only with `rating.overlap` above 1."""
    raters: tuple[str, ...] = ()
    """Raters whose votes are combined; empty for one person's vote."""

    @property
    def is_skip(self) -> bool:
        """Whether it judges nothing: the group is aborted. A skip does not count as a rating."""
        return self.rating == "skip"

    def by(self, rater: str, holder: str) -> bool:
        """Return whether it is the vote of a rater; of raters without a name, of the console."""
        return self.rater == rater if self.rater or rater else self.holder == holder


class Lease(msgspec.Struct, kw_only=True):
    """Reservation of a group for one console that rates it."""

    holder: str
    """Id of the console."""
    rater: str = ""
    until: float = 0.0
    since: float = 0.0
    """Unix seconds when this console got it; a renewal does not change it."""
    key_at: float = 0.0
    """Unix seconds of the last key of the rater there."""
    shared: bool = False
    """It only tells that the rater has the group on screen: others may vote on it."""

    def of_another(self, holder: str, now: float) -> bool:
        """Return whether it is valid at time `now` and held by a console other than `holder`."""
        return self.holder != holder and now < self.until and not self.shared


class Candidate(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One episode's answer in a group; see `Group` for its defaults."""

    index: int
    episode_uuid: str = ""
    phase: str = "waiting"
    """waiting, claimed, answered, failed, ended, recorded, aborted, expired or unknown."""
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    """JSON text; empty without tool calls."""
    cut: bool = False
    """The texts above are shortened; the journal has the whole ones."""
    truncated: bool = False
    """The prompt was truncated for this candidate."""
    step: int | None = None
    """Global step of the weights that answered, or that its episode was claimed under."""
    later_step: int | None = None
    """See `core.state.weights.WeightVersion`."""
    run: int = 0
    """Number of the training run of these weights; 0 if unknown."""
    finish_reason: str = ""
    seconds: float = 0.0
    tokens: int = 0
    auto_reward: float | None = None
    parts: tuple[Part, ...] = ()
    reward: float | None = None
    """The sealed reward; None before sealing."""
    advantage: float | None = None
    attempt: int = 1
    error: str = ""
    failure: str = ""
    """Kind of the failure, see `core.events.CandidateFailed`; empty for other errors."""
    failure_text: str = ""

    @property
    def has_answer(self) -> bool:
        """Whether it has an answer to read and to rate."""
        if self.phase in ("waiting", "claimed", "failed"):
            return False
        return bool(self.phase == "answered" or self.text or self.tool_calls or self.finish_reason)


class Group(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One user request and its N candidates.

    The JSON omits fields that have their default, so a released default must never change. Like
    events, it is plain data without reference cycles, which the garbage collector does not track.
    """

    group_id: str
    request_id: str
    server: str
    task_id: str
    n: int
    query: str
    opened_at: float
    phase: str = "QUEUED"
    cause: str = ""
    cause_kind: str = ""
    """Kind of the cause of its end, see `core.events.causes`."""
    cause_params: dict[str, Any] = msgspec.field(default_factory=dict)
    model: str = ""
    episode_type: str = "train"
    row_id: str = ""
    dataset_task_id: str = ""
    reference: str | None = None
    session: str = ""
    turn: int = 0
    """Number of the request in its session, from 1; 0 if not applicable."""
    helper: str = ""
    """Rule that recognised it as a helper call; empty for none."""
    turns: int = 0
    """Number of the requested answer in its conversation, from 1; 0 if unknown."""
    client_timeout: float = 0.0
    """Seconds after which the client gives up, as stated in the request; 0 if unknown."""
    joined: int = 0
    """Number of equal requests that waited with it."""
    replayed: int = 0
    """Number of equal requests that came later and received its answer."""
    step: int | None = None
    run: int = 0
    """Number of the training run of its weights; 0 if unknown."""
    engine_run: int = 0
    """`Server.engine_run` when its episodes were claimed."""
    candidates: list[Candidate] = msgspec.field(default_factory=list)
    best: int | None = None
    """Index of the winner by the present rewards."""
    returned: int | None = None
    returned_why: str = ""
    waited: float | None = None
    rating: Rating | None = None
    overlap: int = 1
    """Number of different raters whose votes it needs; see `votes`."""
    votes: list[Rating] = msgspec.field(default_factory=list)
    """With `overlap` above 1: the newest vote of each rater, oldest first; `rating` combines them
    when they are complete, or when their time has ended."""
    settled: Rating | None = None
    """The decisive vote on a group whose raters disagreed."""
    repeated: bool = False
    """Its rater voted again; nothing was sent."""
    leases: list[Lease] = msgspec.field(default_factory=list)
    """The newest lease of each console; at most as many valid ones as votes are missing."""
    edited: str = ""
    """The operator's better text for candidate `edited_index`."""
    edited_index: int | None = None
    source: str = ""
    """auto or human; empty before sealing."""
    dead: str = ""
    spread: float | None = None
    version: str = ""
    abstained: str = ""
    traceback: str = ""
    fault_file: str = ""
    fault_line: int = 0
    """Place in the operator's code where the rewards failed; empty and 0 if unknown."""
    until: float | None = None
    """Unix seconds when the rating window closes; None outside AWAITING_RATING."""
    fallback: str = ""
    awaiting: str = ""
    """Reason of the wait: window, answer_first, hold or abstained."""
    spared: float = 0.0
    """Unix seconds until which it stays open for its rater although a user waits; 0 if it is not
    spared."""
    unrated: bool = False
    """It was sent with the fallback of a rating mode: nobody rated or accepted it."""
    damping: float = 0.0
    """Term that the engine adds to the standard deviation when it computes advantages."""
    lost: str = ""
    """Cause for which its server discarded the finished episodes before an update, see
    `core.events.GroupLost`; empty if it did not."""
    marked: bool = False
    note: str = ""
    generating_at: float | None = None
    answered_at: float | None = None
    scored_at: float | None = None
    sealed_at: float | None = None
    closed_at: float | None = None
    latency: dict[str, float] = msgspec.field(default_factory=dict)
    brief: bool = False
    """Its texts and reward parts are not read yet, see `core.state.brief`."""

    @property
    def open(self) -> bool:
        """Whether the group is not closed."""
        return self.phase in OPEN_PHASES

    @property
    def answered(self) -> list[int]:
        """The indices of the candidates that have an answer."""
        return [candidate.index for candidate in self.candidates if candidate.has_answer]

    @property
    def lease(self) -> Lease | None:
        """The newest lease; it may have expired."""
        return self.leases[-1] if self.leases else None

    def vote_of(self, rater: str, holder: str) -> Rating | None:
        """Return the vote of one of several raters; None if he has not voted.

        Args:
            rater: His name; a rater without a name is known by his console.
            holder: His console, as in a lease.
        """
        return next((one for one in self.votes if one.by(rater, holder)), None)

    def leases_of_others(self, holder: str, now: float) -> list[Lease]:
        """Return the valid leases of consoles other than `holder`."""
        return [one for one in self.leases if one.of_another(holder, now)]

    def leases_of_other_raters(self, rater: str, now: float) -> list[Lease]:
        """Return the valid leases that are not of the rater of that name."""
        return [
            one for one in self.leases if now < one.until and one.rater != rater and not one.shared
        ]

    @property
    def missing_votes(self) -> int:
        """How many votes the group lacks; 1 if it is complete, since a vote may be undone."""
        return max(1, self.overlap - len(self.votes))

    @property
    def lacks_votes(self) -> bool:
        """Whether it needs further votes of different raters; in mode off it does not wait."""
        return self.overlap > 1 and self.rating is None

    def is_free(self, holder: str, now: float) -> bool:
        """Return whether a vote is missing that no other console has leased."""
        return len(self.leases_of_others(holder, now)) < self.missing_votes

    def needs_vote_of(self, rater: str, holder: str) -> bool:
        """Return whether the group still needs the vote of this rater or any other one."""
        return self.rating is None and self.vote_of(rater, holder) is None

    def same_answers(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Return, for each of these candidates, the place among them of the first with its answer.

        Answers are the same if a rater sees no difference: text and tool calls. Shortened ones
        count as different.
        """
        first: dict[tuple[str, str], int] = {}
        places = []
        for place, index in enumerate(indices):
            one = self.candidates[index]
            answer = one.text.strip(), one.tool_calls
            known = any(answer) and not one.cut
            places.append(first.setdefault(answer, place) if known else place)
        return tuple(places)

    @property
    def is_rated(self) -> bool:
        """Whether its answers are rated by hand; a skip is no rating."""
        return self.rating is not None and not self.rating.is_skip

    @property
    def is_skipped(self) -> bool:
        """Whether the rater skipped it: it is aborted."""
        return self.rating is not None and self.rating.is_skip

    @property
    def is_disputed(self) -> bool:
        """Whether several raters judged its answers and do not put the same ones first."""
        return disagree(one.rewards for one in self.votes)

    @property
    def discarded(self) -> bool:
        """Whether it ended in order and its server then discarded its episodes."""
        return self.phase == "DONE" and bool(self.lost)

    @property
    def prompt_cut(self) -> bool:
        """Whether the engine truncated the prompt, dropping its middle."""
        return any(one.truncated for one in self.candidates)

    @property
    def user_waits(self) -> bool:
        """Whether its user gets no answer before it is rated: in mode hold, or without rewards."""
        awaits = self.phase == "AWAITING_RATING" and self.awaiting != "window"
        return awaits and self.waited is None

    @property
    def gives_up_at(self) -> float | None:
        """Unix seconds when the client of a waiting user gives up; None if unknown."""
        limited = self.user_waits and self.client_timeout
        return self.opened_at + self.client_timeout if limited else None

    @property
    def rateable(self) -> bool:
        """Whether a rating would still be sent."""
        return self.phase not in SEALED_PHASES and self.episode_type != "eval"
