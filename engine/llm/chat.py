"""Chat completions: requests, sampling parameters, answers in one piece and as a stream (protocol
section 5).

Where the real server answers a plain 500 (a body that is not JSON or not a chat request), this
server answers a 4xx. It adds no system message: the embedded policy was never trained with one.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.lenient_json import lenient
from core.dialects.errors import invalid
from core.dialects.validation import Messages, check_numbers, typed
from core.openai.forms import call_of
from core.openai.ranges import range_error
from engine.interface import Completion, SamplingParams
from engine.server.job import Job
from engine.server.lifecycle import EngineError
from engine.server.pool import EpisodeType

KEEP_ALIVE = b": keepalive\n\n"
"""A comment, which clients ignore."""
_INTEGERS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "top_k", "seed")
_SAMPLING = ("presence_penalty", "frequency_penalty", "repetition_penalty", "top_k", "min_p")
"""Fields that are arguments of `SamplingParams` of the same name."""
_RANGED = (*_INTEGERS[:3], "temperature", "top_p", *_SAMPLING)


class ChatRequest(msgspec.Struct, kw_only=True):
    """The chat request fields that are used; others are ignored, as on the real server."""

    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    logprobs: Any = None
    """True requests the log-prob of each sampled token, in a whole answer."""
    ajetc_prompt: str | list[int] | None = None
    """Extension: a prompt without chat tags, in place of the messages."""

    def conversation(self) -> list[dict[str, Any]]:
        """Return the messages for the policy; content lists are reduced to their text."""
        return [_text_only(message) for message in self.messages]

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """Return the tools the policy may call: none, all, or the named one."""
        if self.tool_choice == "none":
            return None
        chosen = _function_name(self.tool_choice)
        tools = [
            tool for tool in self.tools or [] if chosen is None or _function_name(tool) == chosen
        ]
        return tools or None

    def sampling_fields(self) -> dict[str, Any]:
        """Return the penalties and bounds that the request has: arguments of `SamplingParams`."""
        values = {name: getattr(self, name) for name in _SAMPLING}
        return {name: value for name, value in values.items() if value is not None}


def _function_name(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return function.get("name") if isinstance(function, Mapping) else None


def parse_json(body: bytes) -> Any:
    """Parse a request body.

    Raises:
        EngineError: 400, not JSON.
    """
    try:
        raw = json.loads(body, parse_constant=_refuse_constant)
        return lenient(body) if b"\\ud" in body or b"\\uD" in body else raw
    except (ValueError, RecursionError) as error:
        raise EngineError(400, f"The request body is not JSON: {error}", asserts=True) from error


def checked(raw: Any) -> dict[str, Any]:
    """Return the fields of a request in any form, with checked numbers.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    fields = dict(typed(raw, dict[str, Any], "body"))
    check_numbers(fields, _INTEGERS)
    for name in _RANGED:
        value = fields.get(name)
        if value is not None and (text := range_error(name, value)):
            raise invalid("sampling_range", f"body.{name}", text, value)
    return fields


def read_chat(fields: Mapping[str, Any]) -> ChatRequest:
    """Return a chat request.

    Args:
        fields: See `checked`.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    messages = typed(fields, Messages, "body").messages
    if not messages:
        raise invalid("too_short", "body.messages", "List should have at least 1 item", [])
    for number, message in enumerate(messages):
        if not message.role:
            where = f"body.messages.{number}.role"
            raise invalid("string_too_short", where, "String should have at least 1 character", "")
    return typed(fields, ChatRequest, "body")


LONGEST_UNSET = 4096
"""Answer length of a job that sets none, at most: AgentJet's default of a turn."""


def answer_limit(
    job: Job, context: int, request: ChatRequest | None = None, *, whole: bool = False
) -> int:
    """Return the maximum answer length in tokens: the job's, or less on request.

    A job that sets none has the policy's default, or with `whole` half the window, at most
    `LONGEST_UNSET`, and not more than the job's answers of an episode.

    Args:
        job: Names the length of a turn.
        context: Window in tokens.
        request: May ask for less.
        whole: An answer may take all of the window that its prompt leaves; else half the window.
    """
    most = context - 1 if whole else context // 2
    unset = SamplingParams().max_tokens
    if whole:
        unset = min(max(1, context // 2), LONGEST_UNSET, job.max_response_length or LONGEST_UNSET)
    limit = min(job.max_tokens or unset, max(1, most))
    requested = [] if request is None else [request.max_tokens, request.max_completion_tokens]
    return min([limit, *(count for count in requested if count is not None)])


def sampling_params(
    request: ChatRequest, job: Job, kind: EpisodeType, limit: int
) -> SamplingParams:
    """Return how the answer is sampled.

    In a train episode the job's temperature applies, without seed, penalties and bounds: equal
    seeds or a low temperature would yield N equal answers, and the update trains the distribution
    of the weights. An eval episode uses the request's values.
    """
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    stop = tuple(text for text in stop if text)
    if kind == "train":
        return SamplingParams(
            max_tokens=limit, temperature=job.temperature, top_p=job.top_p, stop=stop
        )
    temperature = job.temperature if request.temperature is None else request.temperature
    return SamplingParams(
        max_tokens=limit,
        temperature=temperature,
        top_p=request.top_p or job.top_p,
        seed=request.seed,
        stop=stop,
        **request.sampling_fields(),
    )


def tool_calls(completion: Completion, prefix: str) -> list[dict[str, Any]]:
    """Return the tool calls of an answer, each with an id that begins with `prefix`."""
    return [
        call_of(f"{prefix}_{index}", call.name, call.arguments)
        for index, call in enumerate(completion.tool_calls)
    ]


def answer_message(completion: Completion, call_prefix: str) -> dict[str, Any]:
    """Return an answer as a message of the assistant."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text}
    if completion.tool_calls:
        message["content"] = completion.text or None
        message["tool_calls"] = tool_calls(completion, call_prefix)
    return message


def choice_logprobs(
    completion: Completion, texts: Callable[[Sequence[int]], list[str]]
) -> dict[str, Any]:
    """Return the field `logprobs` of a choice: the log-probs at temperature 1, without other
    candidates for a token.

    Args:
        completion: The answer.
        texts: Returns the display text of each token.
    """
    entries = [
        {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
        for text, value in zip(texts(completion.tokens), completion.logprobs, strict=True)
    ]
    return {"content": entries}


class ChatEncoder:
    """Encoder of one answer as a chat completion, in one piece or as a stream. The `ajetc` field is
    an extension.

    Args:
        model: Model name in a whole answer.
        request: Has the model name in a stream; `model` by default.
        body: Not used.
    """

    format = ""

    def __init__(self, model: str, request: ChatRequest, body: Mapping[str, Any]) -> None:
        self._model, self._stream_model = model, request.model or model
        self._id, self._created = uuid.uuid4().hex, int(time.time())

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the answer as one object."""
        choice = {
            "index": 0,
            "message": answer_message(completion, f"call_{self._id}"),
            "logprobs": None,
            "finish_reason": completion.finish_reason,
            "stop_reason": completion.stop_reason,
        }
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [choice],
            "usage": usage_of(completion),
            **extension_fields(completion),
        }

    def opening(self) -> bytes:
        """Return the chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        """Return the chunk for a piece of text."""
        return self._chunk({"content": text})

    def idle(self) -> bytes:
        """Return a keep-alive comment."""
        return KEEP_ALIVE

    def closing(self, completion: Completion) -> bytes:
        """Return the chunks with tool calls, finish reason and usage, then `[DONE]`."""
        calls = answer_message(completion, f"call_{self._id}").get("tool_calls", [])
        calls_chunk = self._chunk({"tool_calls": _indexed(calls)}) if calls else b""
        return calls_chunk + self._end({}, completion) + b"data: [DONE]\n\n"

    def failure(self, status: int, detail: str) -> bytes:
        """Return the event for an error in the middle of a stream; no `[DONE]` follows."""
        return _event({"error": {"message": detail, "type": "server_error", "code": status}})

    def compact_stream(self, completion: Completion) -> bytes:
        """Return the whole answer as a stream of three chunks, as the real server sends it."""
        message = answer_message(completion, f"call_{self._id}")
        content: dict[str, Any] = {"content": message["content"]}
        if "tool_calls" in message:
            content["tool_calls"] = _indexed(message["tool_calls"])
        end = self._end({"content": ""}, completion)
        return self.opening() + self._chunk(content) + end + b"data: [DONE]\n\n"

    def _end(self, delta: dict[str, Any], completion: Completion) -> bytes:
        extra = {"usage": usage_of(completion), **extension_fields(completion)}
        return self._chunk(delta, completion, extra)

    def _chunk(
        self,
        delta: dict[str, Any],
        completion: Completion | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        if completion is not None:
            choice |= {
                "finish_reason": completion.finish_reason,
                "stop_reason": completion.stop_reason,
            }
        chunk = {
            "id": f"chatcmpl-{self._id}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._stream_model,
            "choices": [choice],
        }
        return _event({**chunk, **(extra or {})})


def _event(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def text_of(content: Any) -> str:
    """Return the text of a string or of a list of parts; other parts are dropped."""
    if isinstance(content, str):
        return content
    parts = [
        part if isinstance(part, str) else part.get("text")
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, str | dict)
    ]
    return "\n".join(part for part in parts if isinstance(part, str))


def _indexed(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"index": index, **call} for index, call in enumerate(calls)]


def usage_of(completion: Completion) -> dict[str, int]:
    """Return the usage of a chat completion."""
    prompt, sampled = len(completion.prompt_tokens), len(completion.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def extension_fields(completion: Completion) -> dict[str, Any]:
    """Return the extension of an answer: whether its prompt was cut, and the policy's step."""
    return {"ajetc": {"truncated": completion.truncated, "step": completion.step}}


def _text_only(message: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in message.items() if value is not None}
    return {**fields, "content": text_of(message.get("content"))}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
