"""Chat calls of an episode, whole and streamed. Calls of one episode are strictly serial."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypedDict

import msgspec

from ajet_swarm.common.lenient_json import lenient
from ajet_swarm.common.tasks import in_thread
from ajet_swarm.common.text import content_text
from ajet_swarm.http.interface import Request, Response, Streamed, Transport
from ajet_swarm.protocol.errors import (
    ChatError,
    ChatErrorKind,
    TimedOut,
    TooLarge,
    TransportError,
    Unreachable,
)
from ajet_swarm.protocol.schemas import Claimed, Verdict
from ajet_swarm.runtime import SYSTEM, Chance

_encode = msgspec.json.Encoder().encode

# --- what is an answer ---------------------------------------------------------------------------

OVERFLOW: Final = "AgentJet: Exceeded max model context length."
"""Beginning of an answer that reports an error: the conversation was too long."""


VLLM_OVERFLOW: Final = "maximum context length"
"""Part of the text of vLLM's 400 for the same error."""


INVALID_REQUEST: Final = frozenset({400, 413, 422})
"""Statuses for an invalid chat request, which is useless to repeat."""


class ChatAnswer(msgspec.Struct, frozen=True, gc=False):
    """A usable completion, as bytes and parsed; `answer_of` builds one."""

    status: int
    body: bytes
    parsed: dict[str, Any]
    message: dict[str, Any]
    """The assistant's message: `role`, `content` (may be None), perhaps `tool_calls`."""
    finish_reason: str
    """`stop`, `length`, `tool_calls`; empty when the server reports none."""
    usage: dict[str, Any]
    """Token counts; empty when the server reports none."""

    @property
    def text(self) -> str:
        """The message's text, empty when it has none."""
        content = self.message.get("content")
        return content if isinstance(content, str) else ""


def answer_of(status: int, body: bytes, parsed: dict[str, Any]) -> ChatAnswer:
    """Return the answer in a completion that has a choice with a message."""
    choice, usage = parsed["choices"][0], parsed.get("usage")
    reason = choice.get("finish_reason")
    return ChatAnswer(
        status,
        body,
        parsed,
        choice["message"],
        reason if isinstance(reason, str) else str(reason or ""),
        usage if isinstance(usage, dict) else {},
    )


def chat_answer(response: Response, where: str) -> ChatAnswer:
    """Return the completion in a chat response.

    Raises:
        ChatError: there is none, as in a 200 that carries an error.
    """
    if response.status != 200:
        raise _chat_error(response, where)
    parsed = read_json(response.body)
    if not isinstance(parsed, dict):
        text = f"not a JSON object: {response.body[:200].decode(errors='replace')}"
        raise ChatError(ChatErrorKind.UPSTREAM, text, where=where, status=200)
    choices = parsed.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise _error_in_200(parsed, response, where)
    content = message.get("content")
    if isinstance(content, str) and content.startswith(OVERFLOW):
        raise ChatError(ChatErrorKind.OVERFLOW, content, where=where, status=200)
    return answer_of(response.status, response.body, parsed)


def read_json(data: bytes) -> Any:
    """Return the value of JSON, or None when `data` is not JSON.

    Real servers send halves of surrogate pairs, NaN and infinities; these are tolerated.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return lenient(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _error_in_200(parsed: Mapping[str, Any], response: Response, where: str) -> ChatError:
    """Return the error in a 200: servers up to 2026-05 send a bad key's exception as a body."""
    status = parsed.get("status_code")
    unauthorized = status in (401, 403)
    kind = ChatErrorKind.UNAUTHORIZED if unauthorized else ChatErrorKind.UPSTREAM
    text = Verdict.read(response.body).text or "an answer without a choice"
    return ChatError(kind, text, where=where, status=status if isinstance(status, int) else 200)


def _chat_error(response: Response, where: str) -> ChatError:
    reply = Verdict.read(response.body)
    text = violations(reply.detail) or _openai_error(response.body) or reply.text
    text = text or f"HTTP {response.status}"
    if response.status == 404 and text != "Not Found":  # the latter: no chat route at this address
        kind = ChatErrorKind.LOST_EPISODE
    elif response.status in (401, 403):
        kind = ChatErrorKind.UNAUTHORIZED
    elif response.status in INVALID_REQUEST:
        kind = ChatErrorKind.OVERFLOW if VLLM_OVERFLOW in text else ChatErrorKind.REFUSED
    else:
        kind = ChatErrorKind.UPSTREAM
    return ChatError(kind, text, where=where, status=response.status)


def violations(detail: Any) -> str:
    """Return FastAPI's list of violations of a body as text; empty for any other `detail`.

    The text does not repeat the body, which may be long and private.
    """
    if not isinstance(detail, list):
        return ""
    texts = []
    for violation in detail[:5]:
        if not isinstance(violation, dict) or not isinstance(violation.get("msg"), str):
            return ""
        loc = violation.get("loc")
        where = ".".join(str(part) for part in loc) if isinstance(loc, list) else ""
        texts.append(f"{where}: {violation['msg']}" if where else violation["msg"])
    return "; ".join(texts)


def _openai_error(body: bytes) -> str:
    """Return the text of `{"error": {"message": ...}}`."""
    try:
        parsed = msgspec.json.decode(body)
        text = parsed["error"]["message"]
        return text if isinstance(text, str) else ""
    except (msgspec.MsgspecError, RecursionError, TypeError, KeyError):
        return ""


# --- an answer as a stream of events --------------------------------------------------------------

OnDelta = Callable[[dict[str, Any]], None]
"""Called with one delta of choice 0: `reasoning`, `content`, or `tool_calls` with one call.

The first delta of a call has its index, id, type and name, later ones its index and a piece of its
arguments.
"""

FRAME: Final = 384
"""Bytes of an event around its delta, which are not kept: ids, the model, empty fields."""
OBJECT: Final = 128
"""Bytes that an event or a line takes in memory at least."""
CALL: Final = 2048
"""Bytes that a tool call takes at least."""
_TEXTS: Final = {
    "content": "content",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
}
"""Field of a delta that has text -> its name for `OnDelta`."""
_DROPPED: Final = frozenset({"choices", "object", "usage", "error"})


class EventSplitter:
    """Splitter of a byte stream into the data of events; drops comments, names and ids."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    @property
    def held(self) -> int:
        """Bytes of the event that is not complete yet."""
        return len(self._rest) + sum(map(len, self._data)) + OBJECT * len(self._data)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that `data` completes."""
        seen = len(self._rest)
        self._rest += data
        end = self._rest.rfind(b"\n", seen) + 1
        if not end:
            return []
        lines = bytes(self._rest[:end])
        del self._rest[:end]
        events = []
        for raw in lines.split(b"\n")[:-1]:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
        return events


class _PartialToolCall:
    """The received part of a tool call."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.announced = False
        """Its first delta has been emitted."""

    def whole(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class ChatStream:
    """Accumulator of one streamed completion, which arrives as server-sent events; no I/O.

    Real servers emulate streams: they send the whole answer in three chunks; newer ones first send
    comments that keep the connection alive. An error merely ends the stream (protocol section 5),
    so a stream without a finish reason and `[DONE]` has failed.

    Deltas are held back until there is text to show: neither white space nor the beginning of an
    overflow message is passed on alone.

    Args:
        on_delta: See `OnDelta`.
        where: The address, for errors.
        chance: Source of ids of tool calls without one.
    """

    def __init__(self, on_delta: OnDelta, where: str = "", chance: Chance = SYSTEM.chance) -> None:
        self.done = False
        """`[DONE]` has arrived."""
        self._on_delta = on_delta
        self._where = where
        self._chance = chance
        self._events = EventSplitter()
        self._kept = 0
        self._held: list[dict[str, Any]] | None = []
        self._top: dict[str, Any] = {}
        self._usage: Any = None
        self._choice: dict[str, Any] = {}
        """`finish_reason`, `stop_reason` and other fields of the choice that are sent once."""
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {"content": []}
        """Field of the message -> its parts: the content, and the reasoning under its name."""
        self._calls: list[_PartialToolCall] = []
        self._logprobs: dict[str, list[Any]] = {}
        self._token_ids: list[int] = []

    @property
    def held(self) -> int:
        """Approximate bytes in memory."""
        return self._kept + self._events.held

    def clear(self) -> None:
        """Forget everything; call nothing else afterwards."""
        self.__dict__.clear()

    def feed(self, data: bytes) -> None:
        """Parse bytes of the body.

        Raises:
            ChatError: an error event, or an event that is not a chat chunk.
        """
        for event in self._events.feed(data):
            if self.done:
                return
            if event == b"[DONE]":
                self.done = True
            else:
                self._chunk(event)

    def finish(self) -> ChatAnswer:
        """Return the whole answer; call it once the body has ended or `done` is set.

        Raises:
            ChatError: the stream ended too early, or its text reports an overflow.
        """
        if not (self.done and self._choice.get("finish_reason")):
            raise ChatError(ChatErrorKind.BROKEN, "the stream ended too early", where=self._where)
        for call in self._calls:
            if call.announced and not call.arguments:
                self._add_arguments(call, "{}")
        parsed = self._completion()
        answer = chat_answer(Response(200, {}, _encode(parsed)), self._where)
        self._flush()
        return answer

    # --- chunks --------------------------------------------------------------------------------

    def _chunk(self, event: bytes) -> None:
        self._kept += max(OBJECT, len(event) - FRAME)
        chunk = read_json(event)
        if not isinstance(chunk, dict):
            text = f"not a chat chunk: {event[:200].decode(errors='replace')}"
            raise ChatError(ChatErrorKind.UPSTREAM, text, where=self._where, status=200)
        choices = chunk.get("choices")
        if chunk.get("error") or not isinstance(choices, list):
            raise self._fault(chunk)
        for name, value in chunk.items():
            if value is not None and name not in _DROPPED:
                self._top[name] = value
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in choices:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._take(choice)

    def _fault(self, chunk: Mapping[str, Any]) -> ChatError:
        error = chunk.get("error") or chunk
        body = error if isinstance(error, dict) else {"message": str(error)}
        code = body.get("code") or body.get("status_code")
        status = code if isinstance(code, int) and code >= 400 else 500
        return _chat_error(Response(status, {}, _encode(body)), self._where)

    def _take(self, choice: Mapping[str, Any]) -> None:
        for name, value in choice.items():
            if name == "logprobs" and isinstance(value, dict):
                for kind, items in value.items():
                    if isinstance(items, list):
                        self._logprobs.setdefault(kind, []).extend(items)
            elif name == "token_ids":
                self._token_ids += value if isinstance(value, list) else []
            elif name == "delta" and isinstance(value, dict):
                self._take_delta(value)
            elif name in ("delta", "logprobs"):
                continue
            elif value is not None or name not in self._choice:
                self._choice[name] = value

    def _take_delta(self, delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name in _TEXTS and (text := content_text(value)):
                self._texts.setdefault(name, []).append(text)
                self._emit({_TEXTS[name]: text})
            elif name == "tool_calls" and isinstance(value, list):
                for call in value:
                    if isinstance(call, dict):
                        self._take_call(call)
            elif value and name not in (*_TEXTS, "tool_calls"):
                self._message[name] = value

    def _take_call(self, piece: Mapping[str, Any]) -> None:
        call = self._call_of(piece)
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments") or ""
        text = _encode(arguments).decode() if isinstance(arguments, dict) else str(arguments)
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        if call.name and not call.announced:
            call.announced = True
            call.id = call.id or f"chatcmpl-tool-{self._chance.token(8)}"
            head = {"id": call.id, "type": "function", "index": call.index}
            self._emit_call({**head, "function": {"name": call.name}})
            text = "".join(call.arguments) + text
            call.arguments.clear()
        if text:
            self._add_arguments(call, text)

    def _add_arguments(self, call: _PartialToolCall, text: str) -> None:
        call.arguments.append(text)
        if call.announced:
            self._emit_call({"index": call.index, "function": {"arguments": text}})

    def _call_of(self, piece: Mapping[str, Any]) -> _PartialToolCall:
        """Return the call of a piece; some servers send no index, or 0 for every call."""
        index, name = piece.get("index"), piece.get("id")
        if isinstance(index, int) and 0 <= index < len(self._calls):
            call = self._calls[index]
        elif index is None and self._calls and not name:
            call = self._calls[-1]
        else:
            return self._new_call()
        if name and call.id and call.id != name:
            same = [call for call in self._calls if call.id == name]
            return same[0] if same else self._new_call()
        return call

    def _new_call(self) -> _PartialToolCall:
        self._kept += CALL
        self._calls.append(_PartialToolCall(len(self._calls)))
        return self._calls[-1]

    # --- deltas --------------------------------------------------------------------------------

    def _emit_call(self, call: dict[str, Any]) -> None:
        self._emit({"content": None, "tool_calls": [call]})

    def _emit(self, delta: dict[str, Any]) -> None:
        if self._held is None:
            self._on_delta(delta)
            return
        self._held.append(delta)
        if "tool_calls" in delta or self._has_text():
            self._flush()

    def _has_text(self) -> bool:
        content = "".join(self._texts["content"])
        overflow = content.startswith(OVERFLOW) or OVERFLOW.startswith(content)
        texts = {**self._texts, "content": [] if overflow else [content]}
        return any(text.strip() for parts in texts.values() for text in parts)

    def _flush(self) -> None:
        held, self._held = self._held or [], None
        for delta in held:
            self._on_delta(delta)

    # --- the whole -----------------------------------------------------------------------------

    def _completion(self) -> dict[str, Any]:
        texts = {name: "".join(parts) or None for name, parts in self._texts.items()}
        message = {"role": "assistant", **self._message, **texts}
        if calls := [call.whole() for call in self._calls if call.announced]:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": self._logprobs or None}
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        return {
            **self._top,
            "object": "chat.completion",
            "choices": [{**self._choice, **choice}],
            "usage": self._usage,
        }


# --- a call --------------------------------------------------------------------------------------

CHAT = 3600.0
"""Timeout in seconds of a chat call: that of the newest server itself."""
LONG = 1 << 19
"""Bytes above which a response is parsed in a thread."""
LAST_BYTES = 0.2
"""Seconds to wait for the end of a stream after its last event."""
_KINDS: Final[Mapping[type[TransportError], ChatErrorKind]] = {
    TimedOut: ChatErrorKind.TIMED_OUT,
    Unreachable: ChatErrorKind.UNREACHABLE,
    TooLarge: ChatErrorKind.OVERSIZED,
}


class ChatOptions(TypedDict, total=False):
    """How a chat call is made: arguments of `ask`."""

    headers: Mapping[str, str] | None
    timeout: float
    most: int
    on_delta: OnDelta | None


async def ask(
    transport: Transport,
    claimed: Claimed,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    timeout: float = CHAT,
    most: int = 0,
    on_delta: OnDelta | None = None,
    *,
    chance: Chance = SYSTEM.chance,
) -> ChatAnswer:
    """Request one chat completion, whole or streamed; the result is the same.

    Args:
        transport: Sends the request.
        claimed: The episode.
        body: The request, without `stream`: encoded, or as a mapping, which a stream needs.
        headers: Additional headers; authorization and content type are set here.
        timeout: Seconds to the end of the response.
        most: Bytes of the response that may be in memory; 0 for the limit of the transport.
        on_delta: Called with each delta of a stream, which is requested only if this is given; not
            called if the server does not stream.
        chance: Source of ids of tool calls for which the server sends none.

    Raises:
        ChatError: no usable completion, possibly after some deltas; `kind` classifies the failure.
    """
    where = claimed.base_url + "/chat/completions"
    if on_delta is not None and not isinstance(body, bytes):
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    own = {"Authorization": f"Bearer {claimed.api_key}", "Content-Type": "application/json"}
    request = Request(
        "POST",
        where,
        body=body if isinstance(body, bytes) else _encode(body),
        headers={**(headers or {}), **own},
        timeout=timeout,
        most=most,
    )
    try:
        if on_delta is None:
            return await _parsed(await transport.request(request), where)
        async with transport.stream(request) as answer:
            kind = answer.headers.get("Content-Type", "")
            if answer.status != 200 or not kind.startswith("text/event-stream"):
                return await _parsed(await answer.whole(), where)
            return await _read_stream(answer, ChatStream(on_delta, where, chance))
    except TransportError as error:
        kind = _KINDS.get(type(error), ChatErrorKind.UPSTREAM)
        raise ChatError(kind, error.what, where=where) from error


async def _read_stream(answer: Streamed, stream: ChatStream) -> ChatAnswer:
    try:
        while not stream.done and (part := await answer.read()):
            stream.feed(part)
            answer.hold(stream.held)
        with contextlib.suppress(TransportError, TimeoutError):
            async with asyncio.timeout(LAST_BYTES):
                while await answer.read():  # usually empty; then the connection is used again
                    pass
        return stream.finish()
    finally:
        stream.clear()  # an error and its frames refer to it


async def _parsed(response: Response, where: str) -> ChatAnswer:
    if len(response.body) <= LONG:
        return chat_answer(response, where)
    return await in_thread(partial(chat_answer, response, where))
