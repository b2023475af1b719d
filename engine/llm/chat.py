"""Chat completions: requests, sampling parameters, answers in one piece and as a stream (protocol
section 5).

Where the real server answers a plain 500 (a body that is not JSON or not a chat request), this
server answers a 4xx. It adds no system message: the embedded policy was never trained with one.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.openai.forms import call_of
from engine.interface import Completion, SamplingParams
from engine.llm.sampling_fields import Finite, SamplingFields
from engine.server.episode_keys import replace_surrogates
from engine.server.job import Job
from engine.server.lifecycle import EngineError
from engine.server.pool import EpisodeType

Model = TypeVar("Model", bound=BaseModel)


class Message(BaseModel):
    """A chat message in the OpenAI form; unknown fields are passed to the chat template."""

    model_config = ConfigDict(extra="allow")
    role: str = Field(min_length=1)
    content: str | list[dict[str, Any] | str] | None = None
    """Parts may be plain strings, as vLLM accepts."""


Count = Annotated[int, Field(ge=1)]
Temperature = Annotated[Finite, Field(ge=0, le=100)]
Mass = Annotated[Finite, Field(gt=0, le=1)]


class ChatRequest(SamplingFields):
    """The chat request fields that are used; others are ignored, as on the real server."""

    messages: list[Message] = Field(min_length=1)
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Mass | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
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

    def chat(self) -> "ChatRequest":
        """Return itself; the other API forms are converted to this one."""
        return self


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
    except (ValueError, RecursionError) as error:
        raise EngineError(400, f"The request body is not JSON: {error}", asserts=True) from error
    return _replace_all_surrogates(raw) if b"\\ud" in body or b"\\uD" in body else raw


def validate(model: type[Model], raw: Any) -> Model:
    """Validate a request against its model.

    Raises:
        RequestValidationError: with locations in FastAPI's form.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise RequestValidationError(
            [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        ) from error


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


def tool_calls(completion: Completion) -> list[dict[str, Any]]:
    """Return the tool calls of an answer, each with an id."""
    return [
        call_of(f"call_{uuid.uuid4().hex}", call.name, call.arguments)
        for call in completion.tool_calls
    ]


def answer_message(completion: Completion) -> dict[str, Any]:
    """Return an answer as a message of the assistant."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text}
    if completion.tool_calls:
        message["content"] = completion.text or None
        message["tool_calls"] = tool_calls(completion)
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
        requested: Model name in a stream: the request's, else `model`.
    """

    format = ""

    def __init__(self, model: str, requested: str | None) -> None:
        self._model, self._stream_model = model, requested or model
        self._id, self._created = uuid.uuid4().hex, int(time.time())

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the answer as one object."""
        choice = {
            "index": 0,
            "message": answer_message(completion),
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
            "usage": _usage(completion),
            "ajetc": _extension_fields(completion),
        }

    def opening(self) -> bytes:
        """Return the chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        """Return the chunk for a piece of text."""
        return self._chunk({"content": text})

    def idle(self) -> bytes:
        """Return a keep-alive comment."""
        return b": keepalive\n\n"

    def closing(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Return the chunks with tool calls, finish reason and usage, then `[DONE]`."""
        calls = whole["choices"][0]["message"].get("tool_calls", [])
        calls_chunk = self._chunk({"tool_calls": _indexed(calls)}) if calls else b""
        return calls_chunk + self._end({}, completion) + b"data: [DONE]\n\n"

    def failure(self, status: int, detail: str) -> bytes:
        """Return the event for an error in the middle of a stream; no `[DONE]` follows."""
        return sse_event({"error": {"message": detail, "type": "server_error", "code": status}})

    def compact_stream(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Return the whole answer as a stream of three chunks, as the real server sends it."""
        message = whole["choices"][0]["message"]
        content: dict[str, Any] = {"content": message["content"]}
        if "tool_calls" in message:
            content["tool_calls"] = _indexed(message["tool_calls"])
        end = self._end({"content": ""}, completion)
        return self.opening() + self._chunk(content) + end + b"data: [DONE]\n\n"

    def _end(self, delta: dict[str, Any], completion: Completion) -> bytes:
        extra = {"usage": _usage(completion), "ajetc": _extension_fields(completion)}
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
        return sse_event({**chunk, **(extra or {})})


def sse_event(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def text_of(content: Any, kinds: Sequence[str] = ("text", "input_text", "output_text")) -> str:
    """Return the text of a string or of a list of parts; other parts are dropped."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") in kinds)
    ]
    return "\n".join(part for part in parts if isinstance(part, str))


def _indexed(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"index": index, **call} for index, call in enumerate(calls)]


def _usage(completion: Completion) -> dict[str, int]:
    prompt, sampled = len(completion.prompt_tokens), len(completion.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def _extension_fields(completion: Completion) -> dict[str, Any]:
    return {"truncated": completion.truncated, "step": completion.step}


def _text_only(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True)
    content = message.content
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else part.get("text") for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str))
    fields["content"] = content or ""
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _replace_all_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_replace_all_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {
            replace_surrogates(key): _replace_all_surrogates(item) for key, item in value.items()
        }
    return value
