"""One group, its candidates, and the handlers of its events."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ajet_swarm.common.text import content_text
from core import events
from core.scoring.agreement import disagree
from core.state.common import TEXT_CAP, record_of
from core.state.inbox import enter_inbox
from core.state.rating import RATING_HANDLERS, Lease, Rating, count_vote
from core.state.runs import note_group
from core.state.server import count_group, step_stats

if TYPE_CHECKING:
    from core.state import State

GROUP_CAP = 500

OPEN_PHASES = frozenset(
    {"QUEUED", "CLAIMING", "GENERATING", "SCORING", "AWAITING_RATING", "SUBMITTING"}
)

SEALED_PHASES = frozenset({"SUBMITTING", "DONE", "ABORTED", "FAILED"})
"""Phases in which a rating has no effect."""


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
    """See `core.state.server.WeightVersion`."""
    run: int = 0
    """Number of the training run of these weights; 0 if unknown."""
    finish_reason: str = ""
    seconds: float = 0.0
    tokens: int = 0
    auto_reward: float | None = None
    parts: tuple[events.Part, ...] = ()
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
        return next((vote for vote in self.votes if vote.by(rater, holder)), None)

    def leases_of_others(self, holder: str, now: float) -> list[Lease]:
        """Return the valid leases of consoles other than `holder`."""
        return [lease for lease in self.leases if lease.of_another(holder, now)]

    def leases_of_other_raters(self, rater: str, now: float) -> list[Lease]:
        """Return the valid leases that are not of the rater of that name."""
        return [
            lease
            for lease in self.leases
            if now < lease.until and lease.rater != rater and not lease.shared
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
            candidate = self.candidates[index]
            answer = candidate.text.strip(), candidate.tool_calls
            known = any(answer) and not candidate.cut
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
        return disagree(vote.rewards for vote in self.votes)

    @property
    def discarded(self) -> bool:
        """Whether it ended in order and its server then discarded its episodes."""
        return self.phase == "DONE" and bool(self.lost)

    @property
    def prompt_cut(self) -> bool:
        """Whether the engine truncated the prompt, dropping its middle."""
        return any(candidate.truncated for candidate in self.candidates)

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


def open_group(state: "State", event: events.GroupOpened) -> None:
    """Add the group; drop the oldest closed one if there are too many."""
    state.groups[event.group_id] = record_of(
        Group,
        event,
        query=event.shown_query[:TEXT_CAP],
        opened_at=event.at,
        candidates=[Candidate(index=index) for index in range(event.n)],
    )
    state.totals.groups += 1
    state.totals.helpers += bool(event.helper)
    if len(state.groups) > GROUP_CAP:
        oldest = next((key for key, group in state.groups.items() if not group.open), None)
        if oldest is not None:
            del state.groups[oldest]


def _candidate(group: Group, index: int) -> Candidate:
    """Return the candidate of that index; add it if it is missing."""
    candidates = group.candidates
    while index >= len(candidates):
        candidates.append(Candidate(index=len(candidates)))
    return candidates[index]


def _joined(state: "State", group: Group, event: events.RequestJoined) -> None:
    group.joined += 1
    state.totals.joined += 1


def _replayed(state: "State", group: Group, event: events.RequestReplayed) -> None:
    group.replayed += 1
    state.totals.replayed += 1


def _intended(state: "State", group: Group, event: events.ClaimIntended) -> None:
    group.phase = "CLAIMING"
    group.n = event.n


def _claimed(state: "State", group: Group, event: events.EpisodesClaimed) -> None:
    for episode in event.episodes:
        candidate = _candidate(group, episode.index)
        candidate.episode_uuid = episode.episode_uuid
        candidate.phase = "claimed"
        candidate.attempt = episode.attempt
        candidate.error = candidate.failure = candidate.failure_text = ""
        candidate.step, candidate.run, candidate.later_step = event.step, event.run, None
    group.run = event.run
    if event.step is not None:
        group.step = event.step
        server = state.servers.get(group.server)
        group.engine_run = server.engine_run if server is not None else 0
    if event.expires_at:
        group.phase = "GENERATING"
        group.cause = ""
        group.generating_at = event.at
        group.damping = event.damping


def _returned_claims(state: "State", group: Group, event: events.ClaimsReturned) -> None:
    for candidate in group.candidates:
        if candidate.episode_uuid in event.episode_uuids:
            candidate.episode_uuid = ""
            candidate.phase = "waiting"
    group.cause = event.cause


def _answered(state: "State", group: Group, event: events.CandidatesAnswered) -> None:
    for answered in event.candidates:
        candidate = _candidate(group, answered.index)
        candidate.phase = "answered"
        message = answered.message
        content = message.get("content")
        text = content if isinstance(content, str) else content_text(content)
        thought = message.get("reasoning") or message.get("reasoning_content")
        reasoning = content_text(thought) if thought else ""
        calls = message.get("tool_calls")
        called = msgspec.json.encode(calls).decode() if calls else ""
        candidate.text = text[:TEXT_CAP]
        candidate.reasoning = reasoning[:TEXT_CAP]
        candidate.tool_calls = called[:TEXT_CAP]
        candidate.cut = max(len(text), len(reasoning), len(called)) > TEXT_CAP
        candidate.truncated = answered.truncated
        candidate.finish_reason = answered.finish_reason
        candidate.seconds = answered.seconds
        candidate.tokens = answered.completion_tokens
        candidate.later_step = answered.later_step
        if answered.step is not None:  # by the server: the reading at the claim was too old
            candidate.step = group.step = answered.step
        candidate.error = candidate.failure = candidate.failure_text = ""
    group.answered_at = event.at
    if group.phase == "GENERATING":
        for candidate in group.candidates:
            if candidate.phase == "claimed":
                return
        group.phase = "SCORING"


def _failed(state: "State", group: Group, event: events.CandidateFailed) -> None:
    candidate = _candidate(group, event.index)
    candidate.phase = "failed"
    unretried = f"; not retried: {event.unretried}" if event.unretried else ""
    candidate.error = f"{event.cause}{unretried}"
    candidate.failure = event.failure
    candidate.failure_text = f"{event.failure_text}{unretried}"
    candidate.text = ""


def _scored(state: "State", group: Group, event: events.GroupScored) -> None:
    for score in event.scores:
        candidate = _candidate(group, score.index)
        candidate.auto_reward = score.reward
        candidate.parts = score.parts
    if group.phase != "AWAITING_RATING":  # otherwise it was scored again
        group.phase = "SCORING"
    group.best = event.best
    group.version = event.version
    group.abstained = ""
    group.traceback = ""
    group.fault_file, group.fault_line = "", 0
    group.scored_at = event.at


def _abstained(state: "State", group: Group, event: events.ScoringAbstained) -> None:
    group.phase = "SCORING"
    group.abstained = f"{event.part}: {event.cause}" if event.part else event.cause
    group.traceback = event.traceback
    group.fault_file, group.fault_line = event.file, event.line
    group.scored_at = event.at


def _awaited(state: "State", group: Group, event: events.RatingAwaited) -> None:
    group.phase = "AWAITING_RATING"
    group.until = event.until
    group.fallback = event.fallback
    group.awaiting = event.why
    group.overlap = event.overlap
    group.spared = event.spared


def _answer(state: "State", group: Group, event: events.AnswerReturned) -> None:
    group.returned = event.index
    group.returned_why = event.why
    group.waited = event.waited
    if event.index is None:
        state.totals.refused += 1
    else:
        state.totals.answered += 1


def _sealed(state: "State", group: Group, event: events.GroupSealed) -> None:
    group.phase = "SUBMITTING"
    group.until = None
    group.best = event.best
    group.source = event.source
    group.unrated = event.unrated
    group.dead = event.dead
    group.spread = event.spread
    group.version = event.version or group.version
    group.sealed_at = event.at
    for sent in event.rewards:
        candidate = _candidate(group, sent.index)
        candidate.reward = sent.reward
        candidate.advantage = sent.advantage
    count_vote(state, group, event)
    state.totals.dead += bool(event.dead)
    server = state.servers.get(group.server)
    if server is None or group.engine_run != server.engine_run:
        return  # its episodes ended with the engine run: no update trains on them
    if group.step is not None and event.rewards:
        stats = step_stats(server, group.step)
        count_group(stats, group)
        stats.version = group.version or stats.version
        stats.mode = state.rating_mode
        if group.row_id and state.mock is not None:
            stats.dataset = state.mock.dataset
        note_group(state, server, group, stats, event.seq, event.at)


_OUTCOMES = {"ended": "ended", "expired": "expired", "refused": "failed", "unknown": "unknown"}


def _ended(state: "State", group: Group, event: events.EpisodesEnded) -> None:
    for ended in event.episodes:
        candidate = _candidate(group, ended.index)
        candidate.phase = _OUTCOMES.get(ended.outcome, ended.outcome)
        if ended.outcome != "ended":
            candidate.error, candidate.failure, candidate.failure_text = ended.text, "", ""


def _aborted(state: "State", group: Group, event: events.EpisodeAborted) -> None:
    for candidate in group.candidates:
        if candidate.episode_uuid == event.episode_uuid:
            candidate.phase = "aborted"
            candidate.error = candidate.error or event.reason


def _closed(state: "State", group: Group, event: events.GroupClosed) -> None:
    group.phase = event.phase
    group.cause = event.cause
    group.cause_kind, group.cause_params = event.cause_kind, event.cause_params
    group.closed_at = event.at
    group.until = None
    group.latency = event.latency
    totals = state.totals
    totals.done += event.phase == "DONE" and not group.lost
    totals.lost += group.discarded
    totals.aborted += event.phase == "ABORTED"
    totals.failed += event.phase == "FAILED"
    enter_inbox(state, group, event)


def _lost(state: "State", group: Group, event: events.GroupLost) -> None:
    was_discarded, group.lost = group.discarded, event.cause
    if group.discarded and not was_discarded:
        state.totals.done -= 1
        state.totals.lost += 1


def _marked(state: "State", group: Group, event: events.GroupMarked) -> None:
    group.marked = event.marked


def _noted(state: "State", group: Group, event: events.GroupNoted) -> None:
    group.note = event.note


GROUP_HANDLERS: Mapping[type[events.GroupEvent], Callable[["State", Group, Any], None]] = {
    events.RequestJoined: _joined,
    events.RequestReplayed: _replayed,
    events.ClaimIntended: _intended,
    events.EpisodesClaimed: _claimed,
    events.ClaimsReturned: _returned_claims,
    events.CandidatesAnswered: _answered,
    events.CandidateFailed: _failed,
    events.GroupScored: _scored,
    events.ScoringAbstained: _abstained,
    events.RatingAwaited: _awaited,
    events.AnswerReturned: _answer,
    events.GroupSealed: _sealed,
    events.EpisodesEnded: _ended,
    events.EpisodeAborted: _aborted,
    events.GroupClosed: _closed,
    events.GroupLost: _lost,
    events.GroupMarked: _marked,
    events.GroupNoted: _noted,
    **RATING_HANDLERS,
}
