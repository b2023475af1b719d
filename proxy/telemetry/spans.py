"""Spans and evaluation results of one complete record, with the times of its events.

Runs on the thread of `proxy.telemetry.export`, never on the event loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidateFailed,
    CandidatesAnswered,
    EpisodeAborted,
    EpisodesClaimed,
    Event,
    GroupClosed,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    RatingUndone,
    ScoringAbstained,
)
from core.scoring.agreement import top
from proxy.telemetry import conventions as names
from proxy.telemetry import wire
from proxy.telemetry.messages import input_messages, output_messages
from proxy.telemetry.recorder import GroupRecord, UpdateRecord

Attributes = dict[str, Any]

_NUMBERS = {
    "temperature": names.REQUEST_TEMPERATURE,
    "top_p": names.REQUEST_TOP_P,
    "top_k": names.REQUEST_TOP_K,
    "frequency_penalty": names.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": names.REQUEST_PRESENCE_PENALTY,
}
_COUNTS = {
    "max_tokens": names.REQUEST_MAX_TOKENS,
    "max_completion_tokens": names.REQUEST_MAX_TOKENS,
    "seed": names.REQUEST_SEED,
}


@dataclass(slots=True)
class _Candidate:
    """What the events of a group say about one candidate."""

    episode: str = ""
    attempt: int = 1
    began: float = 0.0
    ended: float = 0.0
    answer: AnsweredCandidate | None = None
    error: str = ""
    """Low-cardinality name of its failure; empty if it answered."""
    step: int | None = None
    span_id: bytes = b""
    """Of its span, once that was made."""


@dataclass(slots=True)
class _Group:
    """What the events of a group say."""

    candidates: dict[int, _Candidate] = field(default_factory=dict)
    started: float = 0.0
    run: int = 0
    returned: AnswerReturned | None = None
    scored: GroupScored | None = None
    abstained: ScoringAbstained | None = None
    rated: GroupRated | None = None
    sealed: GroupSealed | None = None
    closed: GroupClosed | None = None


@dataclass(frozen=True, slots=True)
class _Trace:
    """The trace that the spans of a group belong to."""

    id: bytes
    state: str = ""
    """The client's `tracestate`."""


class SpanWriter:
    """Makes the spans and evaluation results of records, encoded.

    Args:
        content: Whether to include prompts, answers and reasons.
    """

    def __init__(self, content: bool) -> None:
        self.spans: list[bytes] = []
        """Made so far; the caller empties the list."""
        self.logs: list[bytes] = []
        """Made so far; the caller empties the list."""
        self._content = content
        self._bytes = Random().randbytes

    def write_group(self, record: GroupRecord) -> None:
        """Make the spans of a request, its candidates and its scoring, and all evaluations."""
        group = _read(record)
        opened, closed = record.opened, group.closed
        client = opened.traceparent.split("-")  # empty without a trace of the client
        remote = len(client) > 1
        trace_id = bytes.fromhex(client[1]) if remote else record.trace_id.to_bytes(16, "big")
        trace = _Trace(trace_id, opened.tracestate)
        error = ""
        if closed is not None and group.returned is None and closed.phase != "DONE":
            error = closed.cause_kind or closed.phase.lower()
        ended = group.returned or closed
        request = self._span(
            trace,
            bytes.fromhex(client[2]) if remote else b"",
            names.REQUEST_SPAN,
            wire.encode_span_attributes(_request_attributes(opened, group)),
            (opened.at, ended.at if ended is not None else opened.at),
            kind=wire.SERVER,
            error=error,
            remote=remote,
        )
        shared = _inference_attributes(record)
        if self._content:
            shared[names.INPUT_MESSAGES] = input_messages(opened.body.get("messages") or ())
        of_all = wire.encode_span_attributes(shared)
        for index, candidate in sorted(group.candidates.items()):
            self._candidate(trace, request, record, group, index, candidate, of_all)
        self._scoring(trace, request, group)
        self._evaluations(trace, group)

    def write_update(self, record: UpdateRecord) -> None:
        """Make the span of a weight update: the time without claims, else that of training."""
        event = record.event
        seconds = event.stats.get("sync_seconds") or event.stats.get("seconds") or 0.0
        attributes: Attributes = {
            names.SERVER: event.server,
            names.STEP: event.step,
            names.RUN: event.run,
        }
        for name, value in event.stats.items():
            attributes[f"{names.UPDATE}{name}"] = float(value)
        encoded = wire.encode_span_attributes(attributes)
        times = (event.at - max(seconds, 0.0), event.at)
        self._span(_Trace(self._bytes(16)), b"", names.UPDATE_SPAN, encoded, times)

    def _span(
        self,
        trace: _Trace,
        parent_id: bytes,
        name: str,
        attributes: bytes,
        times: tuple[float, float],
        *,
        kind: bytes = wire.INTERNAL,
        error: str = "",
        remote: bool = False,
    ) -> bytes:
        """Make a span and return its id; `times` are Unix seconds."""
        began, ended = times
        span_id = self._bytes(8)
        if error:
            attributes += wire.encode_span_attributes({names.ERROR_TYPE: error})
        self.spans.append(
            wire.encode_span(
                trace_id=trace.id,
                span_id=span_id,
                parent_id=parent_id,
                trace_state=trace.state,
                remote=remote,
                name=name,
                kind=kind,
                began=_ns(began),
                ended=_ns(max(began, ended)),
                attributes=attributes,
                failed=bool(error),
            )
        )
        return span_id

    def _candidate(
        self,
        trace: _Trace,
        parent_id: bytes,
        record: GroupRecord,
        group: _Group,
        index: int,
        candidate: _Candidate,
        of_all: bytes,
    ) -> None:
        """Make the span of a candidate; `of_all` are the attributes that all candidates share."""
        opened, answer, closed = record.opened, candidate.answer, group.closed
        attributes: Attributes = {names.CANDIDATE: index, names.EPISODE: candidate.episode}
        if candidate.attempt > 1:
            attributes[names.ATTEMPT] = candidate.attempt
        if candidate.step is not None:
            attributes[names.STEP] = candidate.step
        if answer is not None:
            attributes[names.RESPONSE_FINISH_REASONS] = (answer.finish_reason or "stop",)
            attributes[names.USAGE_INPUT_TOKENS] = answer.prompt_tokens
            attributes[names.USAGE_OUTPUT_TOKENS] = answer.completion_tokens
            if record.model:
                attributes[names.RESPONSE_MODEL] = record.model
            if self._content:
                output = output_messages(answer.message, answer.finish_reason)
                attributes[names.OUTPUT_MESSAGES] = output
        for sent in group.sealed.rewards if group.sealed is not None else ():
            if sent.index == index:
                attributes[names.REWARD] = float(sent.reward)
                attributes[names.ADVANTAGE] = float(sent.advantage)
        began = max(candidate.began or group.started or opened.at, opened.at)
        candidate.span_id = self._span(
            trace,
            parent_id,
            f"{names.CHAT} {opened.model}".rstrip(),
            of_all + wire.encode_span_attributes(attributes),
            (began, candidate.ended or (closed.at if closed is not None else began)),
            kind=wire.CLIENT,
            error=candidate.error,
        )

    def _scoring(self, trace: _Trace, parent_id: bytes, group: _Group) -> None:
        """Make the span of the automatic rewards, or of the abstention of their source."""
        scored, abstained = group.scored, group.abstained
        if scored is not None:
            version = wire.encode_span_attributes({names.REWARD_VERSION: scored.version})
            times = (scored.at - scored.seconds, scored.at)
            self._span(trace, parent_id, names.SCORE_SPAN, version, times)
        elif abstained is not None:
            times = (abstained.at, abstained.at)
            self._span(trace, parent_id, names.SCORE_SPAN, b"", times, error="abstained")

    def _evaluations(self, trace: _Trace, group: _Group) -> None:
        """Make each reward, each part of it and each vote the result of an evaluation."""
        scored, rated = group.scored, group.rated
        if scored is not None:
            for score in scored.scores:
                index, at = score.index, scored.at
                label = "best" if index == scored.best else "not_best"
                self._evaluation(trace, group, index, at, "reward", score.reward, label)
                for part in score.parts:
                    label = ("pass" if part.value > 0 else "fail") if part.gate else ""
                    value = part.value
                    self._evaluation(trace, group, index, at, part.name, value, label, part.reason)
        if rated is not None:
            # A vote has a reward for each candidate that answered.
            answered = [index for index, one in sorted(group.candidates.items()) if one.answer]
            votes = dict(zip(answered, rated.rewards, strict=False))
            best = top(votes)
            for index, value in votes.items():
                label = "best" if index in best else "not_best"
                label = label if len(best) < len(votes) else ""
                self._evaluation(trace, group, index, rated.at, "human", value, label, rated.note)

    def _evaluation(
        self,
        trace: _Trace,
        group: _Group,
        index: int,
        at: float,
        name: str,
        value: float,
        label: str,
        reason: str = "",
    ) -> None:
        candidate = group.candidates.get(index)
        if candidate is None or not candidate.span_id:
            return
        attributes: Attributes = {
            names.EVALUATION_NAME: name,
            names.EVALUATION_SCORE_VALUE: float(value),
        }
        if label:
            attributes[names.EVALUATION_SCORE_LABEL] = label
        if reason and self._content:
            attributes[names.EVALUATION_EXPLANATION] = reason
        self.logs.append(
            wire.encode_log(
                trace_id=trace.id,
                span_id=candidate.span_id,
                at=_ns(at),
                event=names.EVALUATION_EVENT,
                attributes=attributes,
            )
        )


def _read(record: GroupRecord) -> _Group:
    """Return what the events of a record say."""
    group = _Group()
    for event in record.events:
        match event:
            case EpisodesClaimed():
                _read_claims(group, event)
            case CandidatesAnswered():
                for answered in event.candidates:
                    _read_answer(group, answered, event.at)
            case CandidateFailed() | EpisodeAborted():
                _read_failure(group, event)
            case AnswerReturned():
                group.returned = group.returned or event
            case GroupSealed():
                group.sealed = event
            case GroupClosed():
                group.closed = event
            case _:
                _read_reward(group, event)
    return group


def _read_claims(group: _Group, event: EpisodesClaimed) -> None:
    """Record episodes; a candidate that is claimed again starts over."""
    group.run = event.run or group.run
    for claim in event.episodes:
        again = event.at if claim.attempt > 1 else 0.0
        group.candidates[claim.index] = _Candidate(
            claim.episode_uuid, claim.attempt, again, step=event.step
        )
    if event.expires_at:
        group.started = event.at


def _read_answer(group: _Group, answer: AnsweredCandidate, at: float) -> None:
    """Record the answer of a candidate."""
    candidate = group.candidates.setdefault(answer.index, _Candidate(answer.episode_uuid))
    candidate.answer, candidate.error = answer, ""
    candidate.step = candidate.step if answer.step is None else answer.step
    candidate.ended, candidate.began = at, at - answer.seconds


def _read_failure(group: _Group, event: CandidateFailed | EpisodeAborted) -> None:
    """Record that a candidate has no answer."""
    candidate = group.candidates.setdefault(event.index, _Candidate(event.episode_uuid))
    if candidate.answer is not None:
        return
    candidate.ended = candidate.ended or event.at
    if isinstance(event, CandidateFailed):
        candidate.error = event.failure or "failed"
    else:
        candidate.error = candidate.error or "aborted"


def _read_reward(group: _Group, event: Event) -> None:
    """Record an automatic reward, its absence, a vote or its withdrawal; the last ones count."""
    match event:
        case GroupScored():
            group.scored, group.abstained = event, None
        case ScoringAbstained():
            group.abstained = event
        case GroupRated():
            group.rated = event
        case RatingUndone():
            group.rated = None


def _request_attributes(opened: GroupOpened, group: _Group) -> Attributes:
    attributes: Attributes = {
        names.SERVER: opened.server,
        names.GROUP: opened.group_id,
        names.REQUEST: opened.request_id,
        names.EPISODE_TYPE: opened.episode_type,
        names.CANDIDATES: len(group.candidates),
        names.REQUEST_STREAM: opened.stream,
    }
    if opened.session:
        attributes[names.CONVERSATION_ID] = opened.session
    if opened.model:
        attributes[names.REQUEST_MODEL] = opened.model
    if group.returned is not None:
        if group.returned.index is not None:
            attributes[names.RETURNED] = group.returned.index
        attributes[names.RETURNED_WHY] = group.returned.why
    if group.run:
        attributes[names.RUN] = group.run
    if group.sealed is not None:
        attributes[names.REWARD_SOURCE] = group.sealed.source
    if group.closed is not None:
        attributes[names.PHASE] = group.closed.phase
        if group.closed.cause_kind:
            attributes[names.CAUSE] = group.closed.cause_kind
        for name, seconds in group.closed.latency.items():
            if name == "keepalives":  # a count
                continue
            attributes[f"{names.LATENCY}{name}"] = float(seconds)
    return attributes


def _inference_attributes(record: GroupRecord) -> Attributes:
    """Return the attributes that the calls of all candidates share."""
    opened, body = record.opened, record.opened.body
    attributes: Attributes = {
        names.OPERATION_NAME: names.CHAT,
        names.PROVIDER_NAME: names.PROVIDER,
    }
    if opened.model:
        attributes[names.REQUEST_MODEL] = opened.model
    if opened.session:
        attributes[names.CONVERSATION_ID] = opened.session
    attributes |= dict(_address(record.url))
    for field_, name in _NUMBERS.items():
        number = body.get(field_)
        if isinstance(number, int | float) and not isinstance(number, bool):
            attributes[name] = float(number)
    for field_, name in _COUNTS.items():
        if isinstance(value := body.get(field_), int) and not isinstance(value, bool):
            attributes[name] = value
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop
    if isinstance(stops, list) and stops and all(isinstance(one, str) for one in stops):
        attributes[names.REQUEST_STOP_SEQUENCES] = tuple(stops)
    return attributes


def _address(url: str) -> Iterator[tuple[str, Any]]:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return
    if parts.hostname:
        yield names.SERVER_ADDRESS, parts.hostname
        yield names.SERVER_PORT, port


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
