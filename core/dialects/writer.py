"""The one writer of answers, of which each dialect fills in the forms of its events. No I/O.

An answer is a sequence of deltas in the form of a chat stream, whether it is complete (`walk`) or
generated now (`LiveDeltas`). Chat and legacy completions send deltas as they are; for messages and
responses `BlockStream` makes blocks of them, of which one is open at a time:

    {"reasoning": "hm"} {"content": "Look"} {"content": ":"}   one block `reasoning`, one `content`
    {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f"}}]}     opens a block `call`
    {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}           adds to it

Enforce a request's tool fields (`tool_choice`, ...) on the upstream's answer. No I/O.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from core.dialects.errors import ApiError
from core.dialects.request import (
    DialectRequest,
    Entry,
    PublicAnswer,
    call_arguments_delta,
    call_start_delta,
    new_call_id,
    requested_tokens,
    valid_text,
    walk,
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


Kind = Literal["reasoning", "content", "call"]


class Writer(ABC):
    """Writer of the response to one request; one object per client connection.

    Either `body`, or a stream: `opening`, any number of `keepalive`, then `answer`; or, when the
    answer is forwarded as it is generated, `delta_events` for each delta and a `finish`. `error`
    ends a stream at any point after `opening`. All methods return the bytes to send: complete
    events only.

    Args:
        request: The request.
        model: The model name in the response.
        created: Time of the response in Unix seconds.
    """

    choices = 1
    """Choices of the response; further winners are not sent."""
    fills_silence = True
    """A delta without an event of its own is answered by a keepalive."""

    def __init__(self, request: DialectRequest, model: str, created: int) -> None:
        self._request = request
        self._model = model
        self._created = created
        self._live: LiveDeltas | None = None
        self._has_sent = False

    @abstractmethod
    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of a response that is not streamed; one winner per choice."""

    @abstractmethod
    def opening(self) -> bytes:
        """Return the first events, sent at admission."""

    @abstractmethod
    def keepalive(self) -> bytes:
        """Return an event without content that resets the client's read timeout: SSE comments do
        not."""

    @abstractmethod
    def error(self, refusal: ApiError) -> bytes:
        """Return the end of a stream that cannot be finished."""

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the complete answer after `opening`: all deltas of all choices and the end."""
        answers = self._shown(winners)
        turns = zip_longest(*map(self._choice_events, range(len(answers)), answers), fillvalue=b"")
        return b"".join(event for turn in turns for event in turn) + self._end(answers)

    def delta_events(self, delta: Mapping[str, Any]) -> bytes:
        """Return the events of one delta of choice 0.

        Args:
            delta: In the form of a chat stream: any of `reasoning`, `content`, `tool_calls` (index,
                id, type, function.name; then index, function.arguments).

        Returns:
            A keepalive, or nothing, if the delta has nothing that this dialect transmits.
        """
        if self._live is None:
            self._live = LiveDeltas(self._request)
        events = b"".join([self._delta(0, public) for public in self._live.public(delta)])
        self._has_sent = self._has_sent or bool(events)
        return events or (self.keepalive() if self.fills_silence else b"")

    def finish(self, winner: PublicAnswer) -> bytes:
        """Return the end of a stream of deltas: closing events, finish reason, usage.

        If no delta was sent before it, return all events of `winner`.
        """
        if not self._has_sent:
            return self.answer([winner])
        (answer,) = self._shown([winner])
        calls_text = (answer.content or "")[len(winner.content or "") :]
        events = self._delta(0, {"content": calls_text}) if calls_text else b""
        return (
            events
            + self._closing(0, answer, requested_tokens(self._request, answer))
            + self._end([answer])
        )

    def _shown(self, winners: Sequence[PublicAnswer]) -> list[PublicAnswer]:
        """Return the answers as the client gets them, whole or streamed."""
        return apply_tool_choice(winners[: self.choices], self._request)

    def _choice_events(self, index: int, answer: PublicAnswer) -> Iterator[bytes]:
        """Yield all events of one choice."""
        parts, rest = walk(answer, requested_tokens(self._request, answer))
        for delta, tokens in parts:
            yield self._delta(index, delta, tokens)
        yield self._closing(index, answer, rest)

    @abstractmethod
    def _delta(self, index: int, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> bytes:
        """Return the events of a delta that has one kind of content."""

    def _closing(self, index: int, answer: PublicAnswer, tokens: Sequence[Entry]) -> bytes:
        """Return the end of one choice, with the tokens after its texts."""
        return b""

    @abstractmethod
    def _end(self, answers: Sequence[PublicAnswer]) -> bytes:
        """Return the end of the stream."""


class Block(msgspec.Struct, eq=False):
    """A part of an answer, which grows while it is streamed."""

    kind: Kind
    index: int
    call: int = -1
    """Index of the call; -1 for a text."""
    call_id: str = ""
    name: str = ""
    """Name of the called function."""
    id: str = ""
    """The dialect's own id of the block."""
    text: str = ""
    """Text or arguments so far."""


class BlockStream(ABC):
    """Converter of deltas to the events that open, extend and close blocks."""

    def __init__(self) -> None:
        self._block: Block | None = None
        self._opened = 0
        self._held = ""
        """Text that arrived within a call: a block of it would cut off the call's arguments."""

    @abstractmethod
    def _start(self, block: Block) -> bytes:
        """Return the events that open a block."""

    @abstractmethod
    def _add(self, block: Block, text: str, tokens: Sequence[Entry]) -> bytes:
        """Return the events of a text that follows `block.text`."""

    @abstractmethod
    def _stop(self, block: Block) -> bytes:
        """Return the events that close a block."""

    def delta(self, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> bytes:
        """Return the events of a delta that has one kind of content, with its tokens."""
        block = self._block
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            if "id" in call:
                return self._open("call", call["index"], call["id"], function["name"])
            if block is not None and block.call == call["index"]:
                return self._extend(function["arguments"])
            return b""
        kind: Kind = "reasoning" if "reasoning" in delta else "content"
        if kind == "content" and block is not None and block.kind == "call":
            self._held += delta[kind]
            return b""
        start = b"" if block is not None and block.kind == kind else self._open(kind)
        return start + self._extend(delta[kind], tokens)

    def close(self, with_held: bool = True) -> bytes:
        """Close the open block; then, unless it is dropped, send the text that was held back."""
        block, self._block = self._block, None
        events = b"" if block is None else self._stop(block)
        text, self._held = self._held, ""
        if text and with_held:
            events += self._open("content") + self._extend(text) + self.close()
        return events

    def _open(self, kind: Kind, call: int = -1, call_id: str = "", name: str = "") -> bytes:
        before = self.close()
        self._block = Block(kind, self._opened, call, call_id, name)
        self._opened += 1
        return before + self._start(self._block)

    def _extend(self, text: str, tokens: Sequence[Entry] = ()) -> bytes:
        block = self._block
        if block is None:
            return b""
        events = self._add(block, text, tokens)
        block.text += text
        return events


def blocks(answer: PublicAnswer) -> list[Block]:
    """Return the blocks of a complete answer."""
    result: list[Block] = []
    if answer.reasoning:
        result.append(Block("reasoning", 0, text=answer.reasoning))
    if answer.content:
        result.append(Block("content", len(result), text=answer.content))
    for index, call in enumerate(answer.tool_calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        result.append(Block("call", len(result), index, call["id"], name, text=arguments))
    return result


def event_bytes(kind: str, data: bytes) -> bytes:
    """Return a server-sent event with a name."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
