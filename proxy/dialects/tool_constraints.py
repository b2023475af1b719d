"""Enforce a request's tool fields (`tool_choice`, ...) on the upstream's answer. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.dialects.request import (
    ChatRequest,
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

    def __init__(self, request: ChatRequest) -> None:
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


class LiveCalls:
    """Converter of the tool calls in an upstream's stream to vLLM's order of deltas.

    The first delta of a call has its id, type and name, the next ones its arguments. One object
    per stream.

    Args:
        request: The request.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._ids = CallIds(request)
        self._body = request.body
        self._known: dict[int, tuple[str, int]] = {}
        """The upstream's index of a call -> (the upstream's id, the index in our stream)."""
        self._count = 0

    def deltas(self, call: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Convert one entry of `tool_calls` to zero, one or two deltas."""
        if forbids_calls(self._body):
            return []
        index = call.get("index")
        upstream_index = index if isinstance(index, int) else 0
        call_id = str(call.get("id") or "")
        function = call.get("function") or {}
        result: list[dict[str, Any]] = []
        known = self._known.get(upstream_index)
        # a new id under a known index is a new call: some upstreams give every call index 0
        if known is None or (call_id and call_id != known[0]):
            known = self._known[upstream_index] = (call_id, self._count)
            self._count += 1
            if not self._dropped(known[1]):
                name = valid_text(str(function.get("name") or ""))
                result.append(call_start_delta(known[1], self._ids.unique(call_id), name))
        if (arguments := function.get("arguments")) and not self._dropped(known[1]):
            result.append(call_arguments_delta(known[1], valid_text(str(arguments))))
        return result

    def _dropped(self, index: int) -> bool:
        return index > 0 and single_call_only(self._body)


def forbids_calls(body: Mapping[str, Any]) -> bool:
    """Return whether the client wants no tool calls; calls of the model then become text."""
    return body.get("tool_choice") == "none"


def forces_call(body: Mapping[str, Any]) -> bool:
    """Return whether the client demands a tool call, of one function or of any."""
    choice = body.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def single_call_only(body: Mapping[str, Any]) -> bool:
    """Return whether the client accepts one tool call at most."""
    return body.get("parallel_tool_calls") is False


def apply_tool_choice(answers: Sequence[PublicAnswer], request: ChatRequest) -> list[PublicAnswer]:
    """Apply the request's `tool_choice` and `parallel_tool_calls` to the answers, as vLLM does.

    Where one call is allowed, the others are dropped; where none is, calls become text. Call ids
    are unique within the request. The finish reason of an answer with calls is `stop` if
    `tool_choice` names a function, else `tool_calls`.
    """
    if not any(answer.tool_calls or answer.finish_reason == "tool_calls" for answer in answers):
        return list(answers)
    ids = CallIds(request)
    return [_constrained(answer, request.body, ids) for answer in answers]


def _constrained(answer: PublicAnswer, body: Mapping[str, Any], ids: CallIds) -> PublicAnswer:
    calls = answer.tool_calls
    content = answer.content
    if calls and forbids_calls(body):
        content = "\n".join([*([content] if content else []), raw_calls(calls)])
        calls = []
    elif single_call_only(body):
        calls = calls[:1]
    return msgspec.structs.replace(
        answer,
        content=content,
        tool_calls=[{**call, "id": ids.unique(call["id"])} for call in calls],
        finish_reason=finish_reason(answer.finish_reason, bool(calls), body),
    )


def finish_reason(upstream_reason: str, has_calls: bool, body: Mapping[str, Any]) -> str:
    """Return the finish reason that vLLM gives.

    Args:
        upstream_reason: The upstream's own finish reason.
        has_calls: Whether the answer to the client has tool calls.
        body: The request's fields.
    """
    if upstream_reason not in ("stop", "tool_calls"):
        return upstream_reason
    named_function = isinstance(body.get("tool_choice"), dict)
    return "tool_calls" if has_calls and not named_function else "stop"


def raw_calls(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return calls as text, in the format that most models write."""
    return "\n".join(_raw_call(**call["function"]) for call in calls)


def _raw_call(name: str, arguments: str) -> str:
    name_json = msgspec.json.encode(name).decode()
    return f'<tool_call>\n{{"name": {name_json}, "arguments": {arguments}}}\n</tool_call>'
