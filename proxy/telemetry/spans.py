"""Spans and evaluation results of a closed group and of a weight update, with the times of events.

They are made after the fact: the tracer is given the start and the end of each span.

The names are those of the documents `docs/gen-ai/gen-ai-spans.md` and `gen-ai-events.md` of
open-telemetry/semantic-conventions at its tag v1.41.1, the last one that contains the conventions
for generative AI (status: development). They moved to open-telemetry/semantic-conventions-genai,
which has no release yet. Names that begin with `ajet.` are this program's own.

Messages of a chat completion in the form of the GenAI conventions.

Source: `gen-ai-input-messages.json` and `gen-ai-output-messages.json` beside the documents that
`proxy.telemetry.spans` names. A span carries them as JSON text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from opentelemetry._logs import Logger
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ajet_swarm.common.text import content_text
from ajet_swarm.common.urls import web_address
from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidateFailed,
    CandidatesAnswered,
    EpisodeAborted,
    EpisodesClaimed,
    GroupEvent,
    GroupOpened,
    GroupScored,
    ScoringAbstained,
    UpdateDone,
)
from core.scoring.agreement import top
from core.state import Candidate, Group, Server


def input_messages(messages: Iterable[Any]) -> str:
    """Return the messages of a request as JSON; those that are no objects are left out."""
    return _json([_message(message) for message in messages if isinstance(message, Mapping)])


def output_messages(message: Mapping[str, Any], finish_reason: str) -> str:
    """Return the one message of an answer as JSON."""
    return _json([{**_message(message, "assistant"), "finish_reason": finish_reason or "stop"}])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _message(message: Mapping[str, Any], default: str = "user") -> dict[str, Any]:
    role = str(message.get("role") or default)
    text = content_text(message.get("content"))
    if role == "tool":
        call_id = message.get("tool_call_id")
        return {
            "role": role,
            "parts": [{"type": "tool_call_response", "id": call_id, "response": text}],
        }
    parts: list[dict[str, Any]] = []
    reasoning = content_text(message.get("reasoning") or message.get("reasoning_content"))
    if reasoning:
        parts.append({"type": "reasoning", "content": reasoning})
    if text:
        parts.append({"type": "text", "content": text})
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            parts.append(
                {
                    "type": "tool_call",
                    "id": call.get("id"),
                    "name": str(function.get("name") or ""),
                    "arguments": _arguments(function.get("arguments")),
                }
            )
    return {"role": role, "parts": parts}


def _arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"
Attributes = dict[str, Any]

_OF_CLIENT = TraceContextTextMapPropagator()

_NUMBERS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
_COUNTS = ("max_tokens", "max_completion_tokens", "seed")
_PARAMETERS: dict[str, type] = dict.fromkeys(_NUMBERS, float) | dict.fromkeys(_COUNTS, int)
"""Field of a request -> the type of its attribute."""


@dataclass(slots=True)
class _Call:
    """What the events of a group say about the newest call of one candidate; Unix seconds."""

    began: float = 0.0
    ended: float = 0.0
    answer: AnsweredCandidate | None = None
    error: str = ""
    """Low-cardinality name of its failure; empty if it answered."""


class SpanWriter:
    """Makes the spans and evaluation results of closed groups and of updates.

    Args:
        tracer: Makes the spans.
        logger: Makes the log events of evaluations.
        content: Whether to include prompts, answers and reasons.
    """

    def __init__(self, tracer: Tracer, logger: Logger, content: bool) -> None:
        self._tracer = tracer
        self._logger = logger
        self._content = content

    def write_group(
        self, group: Group, events: Sequence[GroupEvent], server: Server | None
    ) -> None:
        """Make the spans of a request, its candidates and its scoring, and all evaluations.

        Args:
            group: The closed group.
            events: Its followed events in their order; the first one opened it.
            server: Its server, if that is known.
        """
        opened = events[0]
        assert isinstance(opened, GroupOpened)
        closed_at = group.closed_at or opened.at
        newest = {type(event): event for event in events}
        returned, scored = newest.get(AnswerReturned), newest.get(GroupScored)
        calls = _calls(group, events)
        headers = {"traceparent": opened.traceparent, "tracestate": opened.tracestate}
        request = self._span(
            _OF_CLIENT.extract(headers, Context()),
            "ajet.request",
            _request_attributes(group, opened.stream, len(calls)),
            (opened.at, closed_at if returned is None else returned.at),
            SpanKind.SERVER,
        )
        shared = _inference_attributes(group, opened.body, server)
        if self._content:
            shared["gen_ai.input.messages"] = input_messages(opened.body.get("messages") or ())
        spans = {}
        for index, call in sorted(calls.items()):
            spans[index] = self._span(
                request,
                f"chat {group.model}".rstrip(),
                shared | self._candidate_attributes(group.candidates[index], call, server),
                (max(call.began, opened.at), call.ended or closed_at),
                SpanKind.CLIENT,
            )
        if isinstance(scored, GroupScored):
            times = (scored.at - scored.seconds, scored.at)
            self._span(request, "ajet.score", {"ajet.reward.version": scored.version}, times)
            self._rewards(scored, spans)
        elif abstained := newest.get(ScoringAbstained):
            times = (abstained.at, abstained.at)
            self._span(request, "ajet.score", {"error.type": "abstained"}, times)
        self._votes(group, [index for index, call in sorted(calls.items()) if call.answer], spans)

    def write_update(self, event: UpdateDone) -> None:
        """Make the span of a weight update: the time without claims, else that of training."""
        seconds = event.stats.get("sync_seconds") or event.stats.get("seconds") or 0.0
        stats = {f"ajet.update.{name}": float(value) for name, value in event.stats.items()}
        update = {"ajet.server": event.server, "ajet.step": event.step, "ajet.run": event.run}
        times = (event.at - max(seconds, 0.0), event.at)
        self._span(Context(), "ajet.weight_update", update | stats, times)

    def _span(
        self,
        parent: Context,
        name: str,
        attributes: Attributes,
        times: tuple[float, float],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Context:
        """Make a span and return the context of its children; `times` are Unix seconds."""
        began, ended = (int(seconds * 1e9) for seconds in times)
        known = _known(attributes)
        span = self._tracer.start_span(name, parent, kind, known, start_time=began)
        if "error.type" in known:
            span.set_status(StatusCode.ERROR)
        span.end(max(began, ended))
        return set_span_in_context(span, parent)

    def _candidate_attributes(
        self, candidate: Candidate, call: _Call, server: Server | None
    ) -> Attributes:
        attributes: Attributes = {
            "ajet.candidate.index": candidate.index,
            "ajet.episode.id": candidate.episode_uuid,
            "ajet.candidate.attempt": candidate.attempt if candidate.attempt > 1 else None,
            "ajet.step": candidate.step,
            "error.type": call.error,
        }
        if candidate.reward is not None:
            attributes["ajet.reward"] = float(candidate.reward)
            attributes["ajet.advantage"] = float(candidate.advantage or 0.0)
        if (answer := call.answer) is not None:
            attributes["gen_ai.response.finish_reasons"] = (answer.finish_reason or "stop",)
            attributes["gen_ai.usage.input_tokens"] = answer.prompt_tokens
            attributes["gen_ai.usage.output_tokens"] = answer.completion_tokens
            if server is not None and server.pool is not None:
                attributes["gen_ai.response.model"] = server.pool.model
            if self._content:
                output = output_messages(answer.message, answer.finish_reason)
                attributes["gen_ai.output.messages"] = output
        return attributes

    def _rewards(self, scored: GroupScored, spans: Mapping[int, Context]) -> None:
        """Make each automatic reward and each part of it the result of an evaluation."""
        for score in scored.scores:
            if (span := spans.get(score.index)) is None:
                continue
            label = "best" if score.index == scored.best else "not_best"
            self._evaluation(span, scored.at, "reward", score.reward, label)
            for part in score.parts:
                label = ("pass" if part.value > 0 else "fail") if part.gate else ""
                self._evaluation(span, scored.at, part.name, part.value, label, part.reason)

    def _votes(self, group: Group, answered: Sequence[int], spans: Mapping[int, Context]) -> None:
        """Make a person's vote an evaluation of each candidate that answered."""
        if (rating := group.rating) is None:
            return
        votes = dict(zip(answered, rating.rewards, strict=False))
        best = top(votes)
        for index, value in votes.items():
            label = "" if len(best) == len(votes) else "best" if index in best else "not_best"
            self._evaluation(spans[index], rating.at, "human", value, label, rating.note)

    def _evaluation(
        self, span: Context, at: float, name: str, value: float, label: str, reason: str = ""
    ) -> None:
        attributes: Attributes = {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.value": float(value),
            "gen_ai.evaluation.score.label": label,
        }
        if reason and self._content:
            attributes["gen_ai.evaluation.explanation"] = reason
        self._logger.emit(
            timestamp=int(at * 1e9),
            observed_timestamp=int(at * 1e9),
            context=span,
            attributes=_known(attributes),
            event_name="gen_ai.evaluation.result",
        )


def _calls(group: Group, events: Sequence[GroupEvent]) -> dict[int, _Call]:
    """Return the newest call of each candidate that has an episode."""
    calls = {each.index: _Call() for each in group.candidates if each.phase != "waiting"}
    for event in events:
        match event:
            case EpisodesClaimed():
                again = {claim.index for claim in event.episodes if claim.attempt > 1}
                for index, call in calls.items():
                    if index in again or (event.expires_at and not call.began):
                        calls[index] = _Call(event.at)
            case CandidatesAnswered():
                for answer in event.candidates:
                    calls[answer.index] = _Call(event.at - answer.seconds, event.at, answer)
            case CandidateFailed() | EpisodeAborted() if event.index in calls:
                failed = calls[event.index]
                if failed.answer is None:
                    failed.ended = failed.ended or event.at
                    if isinstance(event, CandidateFailed):
                        failed.error = event.failure or "failed"
                    else:
                        failed.error = failed.error or "aborted"
    return calls


def _request_attributes(group: Group, stream: bool, candidates: int) -> Attributes:
    failed = not group.returned_why and group.phase != "DONE"
    attributes: Attributes = {
        "ajet.server": group.server,
        "ajet.group.id": group.group_id,
        "ajet.request.id": group.request_id,
        "ajet.episode.type": group.episode_type,
        "ajet.candidates": candidates,
        "gen_ai.request.stream": stream,
        "gen_ai.conversation.id": group.session,
        "gen_ai.request.model": group.model,
        "ajet.returned.index": group.returned,
        "ajet.returned.why": group.returned_why,
        "ajet.run": group.run or None,
        "ajet.reward.source": group.source,
        "ajet.phase": group.phase,
        "ajet.cause": group.cause_kind,
        "error.type": (group.cause_kind or group.phase.lower()) if failed else "",
    }
    latency = {name: seconds for name, seconds in group.latency.items() if name != "keepalives"}
    return attributes | {f"ajet.seconds.{name}": float(value) for name, value in latency.items()}


def _inference_attributes(
    group: Group, body: Mapping[str, Any], server: Server | None
) -> Attributes:
    """Return the attributes that the calls of all candidates share."""
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "agentjet",
        "gen_ai.request.model": group.model,
        "gen_ai.conversation.id": group.session,
    }
    if server is not None and (address := web_address(server.url)) is not None:
        attributes["server.address"] = address.hostname
        attributes["server.port"] = address.port or (443 if address.scheme == "https" else 80)
    for field, kind in _PARAMETERS.items():
        value = body.get(field)
        if isinstance(value, int | kind) and not isinstance(value, bool):
            attributes[f"gen_ai.request.{field.replace('completion_', '')}"] = kind(value)
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop
    if isinstance(stops, list) and stops and all(isinstance(text, str) for text in stops):
        attributes["gen_ai.request.stop_sequences"] = tuple(stops)
    return attributes


def _known(attributes: Attributes) -> Attributes:
    """Return the attributes that have a value."""
    return {name: value for name, value in attributes.items() if value not in (None, "")}
