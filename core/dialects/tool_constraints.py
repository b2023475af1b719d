"""Enforce a request's tool fields (`tool_choice`, ...) on the upstream's answer. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from core.dialects.request import (
    DialectRequest,
    PublicAnswer,
    call_arguments_delta,
    call_start_delta,
    new_call_id,
    valid_text,
)


class CallIds:
    """Source of tool call ids that are unique among a request's history and its answer.

    Args:
        request: The request; equal requests give equal ids.
    """

    def __init__(self, request: DialectRequest) -> None:
        self._key = request.key
        self._seen = {
            call["id"]
            for message in request.messages
            for call in message.get("tool_calls") or ()
            if isinstance(call.get("id"), str)
        }
        self._count = 0

    def unique(self, call_id: Any) -> str:
        """Return `call_id` if it is an id that is not in use yet, else a new one."""
        while not isinstance(call_id, str) or not call_id or call_id in self._seen:
            call_id = new_call_id(self._key, self._count)
            self._count += 1
        self._seen.add(call_id)
        return call_id


class LiveDeltas:
    """Converter of an upstream's stream to vLLM's order of deltas, each with one kind of content.

    The first delta of a call has its id, type and name, the next ones its arguments. One object
    per stream.

    Args:
        request: The request.
    """

    def __init__(self, request: DialectRequest) -> None:
        self._ids = CallIds(request)
        self._request = request
        self._known: dict[int, tuple[str, int]] = {}
        """The upstream's index of a call -> (the upstream's id, the index in our stream)."""
        self._count = 0

    def public(self, delta: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the deltas that a client gets for one of the upstream."""
        if reasoning := delta.get("reasoning") or delta.get("reasoning_content"):
            yield {"reasoning": valid_text(str(reasoning))}
        if content := delta.get("content"):
            yield {"content": valid_text(str(content))}
        if not forbids_calls(self._request):
            for call in delta.get("tool_calls") or ():
                yield from self._call(call)

    def _call(self, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        index = call.get("index")
        upstream_index = index if isinstance(index, int) else 0
        call_id = str(call.get("id") or "")
        function = call.get("function") or {}
        known = self._known.get(upstream_index)
        # a new id under a known index is a new call: some upstreams give every call index 0
        if known is None or (call_id and call_id != known[0]):
            known = self._known[upstream_index] = (call_id, self._count)
            self._count += 1
            if not self._dropped(known[1]):
                name = valid_text(str(function.get("name") or ""))
                yield call_start_delta(known[1], self._ids.unique(call_id), name)
        if (arguments := function.get("arguments")) and not self._dropped(known[1]):
            yield call_arguments_delta(known[1], valid_text(str(arguments)))

    def _dropped(self, index: int) -> bool:
        return index > 0 and single_call_only(self._request)


def forbids_calls(request: DialectRequest) -> bool:
    """Return whether the client gets no tool calls; calls of the model then become text."""
    return request.dialect == "completions" or request.body.get("tool_choice") == "none"


def forces_call(request: DialectRequest) -> bool:
    """Return whether the client demands a tool call, of one function or of any."""
    choice = request.body.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def single_call_only(request: DialectRequest) -> bool:
    """Return whether the client accepts one tool call at most."""
    return request.body.get("parallel_tool_calls") is False


def apply_tool_choice(
    answers: Sequence[PublicAnswer], request: DialectRequest
) -> list[PublicAnswer]:
    """Apply the request's `tool_choice` and `parallel_tool_calls` to the answers, as vLLM does.

    Where one call is allowed, the others are dropped; where none is, calls become text. Call ids
    are unique within the request. The finish reason of an answer with calls is `stop` if
    `tool_choice` names a function, else `tool_calls`.
    """
    if not any(answer.tool_calls or answer.finish_reason == "tool_calls" for answer in answers):
        return list(answers)
    ids = CallIds(request)
    return [_constrained(answer, request, ids) for answer in answers]


def _constrained(answer: PublicAnswer, request: DialectRequest, ids: CallIds) -> PublicAnswer:
    calls, content, finish = answer.tool_calls, answer.content, answer.finish_reason
    if calls and forbids_calls(request):
        raw = "\n".join(_raw_call(**call["function"]) for call in calls)
        content, calls = f"{content}\n{raw}" if content else raw, []
    elif single_call_only(request):
        calls = calls[:1]
    if finish in ("stop", "tool_calls"):
        named = isinstance(request.body.get("tool_choice"), dict)
        finish = "tool_calls" if calls and not named else "stop"
    return msgspec.structs.replace(
        answer,
        content=content,
        tool_calls=[{**call, "id": ids.unique(call["id"])} for call in calls],
        finish_reason=finish,
    )


def _raw_call(name: str, arguments: str) -> str:
    """Return a call as text, in the format that most models write."""
    name_json = msgspec.json.encode(name).decode()
    return f'<tool_call>\n{{"name": {name_json}, "arguments": {arguments}}}\n</tool_call>'
