"""What a client's own tool fields ask of any answer, whatever the upstream made of them. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.dialects.request import (
    ChatRequest,
    PublicAnswer,
    call_begins,
    call_goes_on,
    call_id,
    whole_text,
)


class CallIds:
    """Ids of tool calls that differ within a request: from its history and from each other.

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
        self._made = 0

    def of(self, given: Any) -> str:
        """`given` where it is an id nobody had yet, else a new one."""
        while not isinstance(given, str) or not given or given in self._seen:
            given = call_id(self._key, self._made)
            self._made += 1
        self._seen.add(given)
        return given


class LiveCalls:
    """Tool calls of the upstream's own stream, told in vLLM's order: a call's id, type and name
    without arguments, then its arguments. One object for one stream.

    Args:
        request: The request.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._ids = CallIds(request)
        self._body = request.body
        self._known: dict[int, tuple[str, int]] = {}
        """The upstream's index of a call to the id it gave and to our index."""
        self._count = 0

    def deltas(self, call: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What one entry of `tool_calls` becomes: none, one or two deltas."""
        if refuses_calls(self._body):
            return []
        index = call.get("index")
        theirs = index if isinstance(index, int) else 0
        given = str(call.get("id") or "")
        function = call.get("function") or {}
        told: list[dict[str, Any]] = []
        known = self._known.get(theirs)
        if known is None or (given and given != known[0]):  # some give every call the index 0
            known = self._known[theirs] = (given, self._count)
            self._count += 1
            if not self._cut(known[1]):
                name = whole_text(str(function.get("name") or ""))
                told.append(call_begins(known[1], self._ids.of(given), name))
        if (arguments := function.get("arguments")) and not self._cut(known[1]):
            told.append(call_goes_on(known[1], whole_text(str(arguments))))
        return told

    def _cut(self, ours: int) -> bool:
        return ours > 0 and one_call_only(self._body)


def refuses_calls(body: Mapping[str, Any]) -> bool:
    """The client wants no tool calls: what the model wrote for one stays text."""
    return body.get("tool_choice") == "none"


def is_forced(body: Mapping[str, Any]) -> bool:
    """The client wants a call whatever the model thinks: of a function, or of any."""
    choice = body.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def one_call_only(body: Mapping[str, Any]) -> bool:
    """The client takes one call at most."""
    return body.get("parallel_tool_calls") is False


def fitted(winners: Sequence[PublicAnswer], request: ChatRequest) -> list[PublicAnswer]:
    """The winners as vLLM gives them for this request's `tool_choice` and `parallel_tool_calls`.

    Calls are cut to one where one is allowed, become text where none is, and their ids differ
    within the request. A named choice ends with `stop`, any other with calls with `tool_calls`.
    """
    if not any(one.tool_calls or one.finish_reason == "tool_calls" for one in winners):
        return list(winners)
    ids = CallIds(request)
    return [_fitted(one, request.body, ids) for one in winners]


def _fitted(one: PublicAnswer, body: Mapping[str, Any], ids: CallIds) -> PublicAnswer:
    calls = one.tool_calls
    content = one.content
    if calls and refuses_calls(body):
        content = "\n".join([*([content] if content else []), raw_calls(calls)])
        calls = []
    elif one_call_only(body):
        calls = calls[:1]
    return msgspec.structs.replace(
        one,
        content=content,
        tool_calls=[{**call, "id": ids.of(call["id"])} for call in calls],
        finish_reason=finish_reason(one.finish_reason, bool(calls), body),
    )


def finish_reason(told: str, calls: bool, body: Mapping[str, Any]) -> str:
    """The reason as vLLM gives it.

    Args:
        told: The upstream's own.
        calls: Whether the client gets tool calls.
        body: The request's fields.
    """
    if told not in ("stop", "tool_calls"):
        return told
    named = isinstance(body.get("tool_choice"), dict)
    return "tool_calls" if calls and not named else "stop"


def raw_calls(calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls as a model writes them, in the most common form."""
    return "\n".join(_raw_call(**call["function"]) for call in calls)


def _raw_call(name: str, arguments: str) -> str:
    named = msgspec.json.encode(name).decode()
    return f'<tool_call>\n{{"name": {named}, "arguments": {arguments}}}\n</tool_call>'
