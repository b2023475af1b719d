"""Handlers of the events of a group."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from ajet_swarm.common.text import content_text
from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidateFailed,
    CandidatesAnswered,
    ClaimIntended,
    ClaimsReturned,
    EpisodeAborted,
    EpisodesClaimed,
    EpisodesEnded,
    GroupClosed,
    GroupEvent,
    GroupLost,
    GroupMarked,
    GroupNoted,
    GroupOpened,
    GroupScored,
    GroupSealed,
    RatingAwaited,
    RequestJoined,
    RequestReplayed,
    ScoringAbstained,
)
from core.reducer.common import record_of
from core.reducer.rating import RATING_HANDLERS, count_vote
from core.reducer.runs import note_group
from core.reducer.server import count_group, step_stats
from core.state import GROUP_CAP, TEXT_CAP, Candidate, Group, State


class _Indexed(Protocol):
    """Part of an event about one candidate."""

    @property
    def index(self) -> int: ...


_Fact = TypeVar("_Fact", bound=_Indexed)


def open_group(state: State, event: GroupOpened) -> None:
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


def _places(group: Group, facts: Iterable[_Fact]) -> list[tuple[Candidate, _Fact]]:
    """Return each fact with its candidate; a call per fact would cost more than the rest."""
    candidates = group.candidates
    try:
        return [(candidates[one.index], one) for one in facts]
    except IndexError:
        return [(_candidate(group, one.index), one) for one in facts]


def _joined(state: State, group: Group, event: RequestJoined) -> None:
    group.joined += 1
    state.totals.joined += 1


def _replayed(state: State, group: Group, event: RequestReplayed) -> None:
    group.replayed += 1
    state.totals.replayed += 1


def _intended(state: State, group: Group, event: ClaimIntended) -> None:
    group.phase = "CLAIMING"
    group.n = event.n


def _claimed(state: State, group: Group, event: EpisodesClaimed) -> None:
    for candidate, one in _places(group, event.episodes):
        candidate.episode_uuid = one.episode_uuid
        candidate.phase = "claimed"
        candidate.attempt = one.attempt
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


def _returned_claims(state: State, group: Group, event: ClaimsReturned) -> None:
    for candidate in group.candidates:
        if candidate.episode_uuid in event.episode_uuids:
            candidate.episode_uuid = ""
            candidate.phase = "waiting"
    group.cause = event.cause


def _answered(state: State, group: Group, event: CandidatesAnswered) -> None:
    for candidate, one in _places(group, event.candidates):
        _take_answer(group, candidate, one)
    _note_answer(group, event.at)


def _take_answer(group: Group, candidate: Candidate, event: AnsweredCandidate) -> None:
    candidate.phase = "answered"
    candidate.episode_uuid = event.episode_uuid
    message = event.message
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
    candidate.truncated = event.truncated
    candidate.finish_reason = event.finish_reason
    candidate.seconds = event.seconds
    candidate.tokens = event.completion_tokens
    candidate.later_step = event.later_step
    if event.step is not None:  # reported by the server: the reading at the claim was too old
        candidate.step = group.step = event.step
    candidate.error = candidate.failure = candidate.failure_text = ""


def _note_answer(group: Group, at: float) -> None:
    group.answered_at = at
    if group.phase == "GENERATING":
        for one in group.candidates:
            if one.phase == "claimed":
                return
        group.phase = "SCORING"


def _failed(state: State, group: Group, event: CandidateFailed) -> None:
    candidate = _candidate(group, event.index)
    candidate.phase = "failed"
    unretried = f"; not retried: {event.unretried}" if event.unretried else ""
    candidate.error = f"{event.cause}{unretried}"
    candidate.failure = event.failure
    candidate.failure_text = f"{event.failure_text}{unretried}"
    candidate.text = ""


def _scored(state: State, group: Group, event: GroupScored) -> None:
    for candidate, score in _places(group, event.scores):
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


def _abstained(state: State, group: Group, event: ScoringAbstained) -> None:
    group.phase = "SCORING"
    group.abstained = f"{event.part}: {event.cause}" if event.part else event.cause
    group.traceback = event.traceback
    group.fault_file, group.fault_line = event.file, event.line
    group.scored_at = event.at


def _awaited(state: State, group: Group, event: RatingAwaited) -> None:
    group.phase = "AWAITING_RATING"
    group.until = event.until
    group.fallback = event.fallback
    group.awaiting = event.why
    group.overlap = event.overlap
    group.spared = event.spared


def _answer(state: State, group: Group, event: AnswerReturned) -> None:
    group.returned = event.index
    group.returned_why = event.why
    group.waited = event.waited
    if event.index is None:
        state.totals.refused += 1
    else:
        state.totals.answered += 1


def _sealed(state: State, group: Group, event: GroupSealed) -> None:
    group.phase = "SUBMITTING"
    group.until = None
    group.best = event.best
    group.source = event.source
    group.unrated = event.unrated
    group.dead = event.dead
    group.spread = event.spread
    group.version = event.version or group.version
    group.sealed_at = event.at
    for candidate, sent in _places(group, event.rewards):
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


def _ended(state: State, group: Group, event: EpisodesEnded) -> None:
    for candidate, ended in _places(group, event.episodes):
        candidate.phase = _OUTCOMES.get(ended.outcome, ended.outcome)
        if ended.outcome != "ended":
            candidate.error, candidate.failure, candidate.failure_text = ended.text, "", ""


def _aborted(state: State, group: Group, event: EpisodeAborted) -> None:
    for candidate in group.candidates:
        if candidate.episode_uuid == event.episode_uuid:
            candidate.phase = "aborted"
            candidate.error = candidate.error or event.reason


def _closed(state: State, group: Group, event: GroupClosed) -> None:
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


def _lost(state: State, group: Group, event: GroupLost) -> None:
    was_discarded, group.lost = group.discarded, event.cause
    if group.discarded and not was_discarded:
        state.totals.done -= 1
        state.totals.lost += 1


def _marked(state: State, group: Group, event: GroupMarked) -> None:
    group.marked = event.marked


def _noted(state: State, group: Group, event: GroupNoted) -> None:
    group.note = event.note


GROUP_HANDLERS: Mapping[type[GroupEvent], Callable[[State, Group, Any], None]] = {
    RequestJoined: _joined,
    RequestReplayed: _replayed,
    ClaimIntended: _intended,
    EpisodesClaimed: _claimed,
    ClaimsReturned: _returned_claims,
    CandidatesAnswered: _answered,
    CandidateFailed: _failed,
    GroupScored: _scored,
    ScoringAbstained: _abstained,
    RatingAwaited: _awaited,
    AnswerReturned: _answer,
    GroupSealed: _sealed,
    EpisodesEnded: _ended,
    EpisodeAborted: _aborted,
    GroupClosed: _closed,
    GroupLost: _lost,
    GroupMarked: _marked,
    GroupNoted: _noted,
    **RATING_HANDLERS,
}
