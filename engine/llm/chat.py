"""Chat completions: requests, sampling, answers whole and as a stream (protocol section 5).

What the real server answers with a plain 500 (a body that is no JSON, or no chat request) is a 4xx
here; no system message of its own is put before the conversation, because the embedded policy was
never trained with one.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.interface import Completion, SamplingParams
from engine.server.episode_keys import replace_surrogates
from engine.server.job import Job
from engine.server.lifecycle import EngineError
from engine.server.pool import EpisodeType

Model = TypeVar("Model", bound=BaseModel)


class Message(BaseModel):
    """One message in the OpenAI form; unknown fields are kept for the template."""

    model_config = ConfigDict(extra="allow")
    role: str = Field(min_length=1)
    content: str | list[dict[str, Any] | str] | None = None
    """Parts may be bare texts, as behind a vLLM."""


Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Temperature = Annotated[Finite, Field(ge=0, le=100)]
Mass = Annotated[Finite, Field(gt=0, le=1)]


class ChatRequest(BaseModel):
    """What of a chat request is read; the rest is ignored, as on the real server."""

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
    ajetc_prompt: str | list[int] | None = None
    """Ours: a prompt that stands for the messages, without the tags of a conversation."""

    def conversation(self) -> list[dict[str, Any]]:
        """Messages as the policy wants them: of content lists only the text survives."""
        return [_text_only(message) for message in self.messages]

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """Tools the policy may call: none, all, or the one that was named."""
        if self.tool_choice == "none":
            return None
        named = _named(self.tool_choice)
        tools = [tool for tool in self.tools or [] if named is None or _named(tool) == named]
        return tools or None

    def chat(self) -> "ChatRequest":
        """Itself: the other dialects make one of these."""
        return self


def _named(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return function.get("name") if isinstance(function, Mapping) else None


def parse_json(body: bytes) -> Any:
    """Read a request body.

    Raises:
        Refused: 400, not JSON.
    """
    try:
        raw = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EngineError(400, f"The request body is not JSON: {error}", asserts=True) from error
    return _scrub_all(raw) if b"\\ud" in body or b"\\uD" in body else raw


def validate(model: type[Model], raw: Any) -> Model:
    """Check a request against its model.

    Raises:
        RequestValidationError: with places as FastAPI names them.
    """
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise RequestValidationError(
            [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        ) from error


def answer_limit(job: Job, context: int, request: ChatRequest | None = None) -> int:
    """Longest answer in tokens: the job's, never more than half the window, or less if asked."""
    limit = min(job.max_tokens or SamplingParams().max_tokens, max(1, context // 2))
    asked = [] if request is None else [request.max_tokens, request.max_completion_tokens]
    return min([limit, *(count for count in asked if count is not None)])


def sampling_params(
    request: ChatRequest, job: Job, kind: EpisodeType, limit: int
) -> SamplingParams:
    """How the answer is drawn.

    In a train episode the job's temperature holds and the seed is dropped: equal seeds or a low
    temperature would make N equal answers. An eval episode gets what it asks for.
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
    )


def tool_calls(drawn: Completion) -> list[dict[str, Any]]:
    """The calls of an answer, each with an id."""
    return [
        {
            "id": f"call_{uuid.uuid4().hex}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in drawn.tool_calls
    ]


class ChatEncoder:
    """One answer as a chat completion, whole or told in pieces; `ajetc` is ours.

    Args:
        model: The name in a whole answer.
        asked: The name in a stream: the request's, else `model`.
    """

    format = ""

    def __init__(self, model: str, asked: str | None) -> None:
        self._model, self._asked = model, asked or model
        self._id, self._created = uuid.uuid4().hex, int(time.time())

    def whole(self, drawn: Completion) -> dict[str, Any]:
        """The answer as one object."""
        message: dict[str, Any] = {"role": "assistant", "content": drawn.text}
        if drawn.tool_calls:
            message["content"] = drawn.text or None
            message["tool_calls"] = tool_calls(drawn)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": drawn.finish_reason,
            "stop_reason": drawn.stop_reason,
        }
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [choice],
            "usage": _usage(drawn),
            "ajetc": _extension_fields(drawn),
        }

    def opening(self) -> bytes:
        """The role."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._chunk({"content": text})

    def idle(self) -> bytes:
        """Shows that the connection lives."""
        return b": keepalive\n\n"

    def closing(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """Tool calls, the end with usage, `[DONE]`."""
        calls = whole["choices"][0]["message"].get("tool_calls", [])
        told = self._chunk({"tool_calls": _indexed(calls)}) if calls else b""
        return told + self._end({}, drawn) + b"data: [DONE]\n\n"

    def failure(self, status: int, detail: str) -> bytes:
        """An error where the answer should go on; no `[DONE]` follows."""
        return sse_event({"error": {"message": detail, "type": "server_error", "code": status}})

    def three_chunks(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """The whole answer told as the real server tells it."""
        message = whole["choices"][0]["message"]
        content: dict[str, Any] = {"content": message["content"]}
        if "tool_calls" in message:
            content["tool_calls"] = _indexed(message["tool_calls"])
        end = self._end({"content": ""}, drawn)
        return self.opening() + self._chunk(content) + end + b"data: [DONE]\n\n"

    def _end(self, delta: dict[str, Any], drawn: Completion) -> bytes:
        more = {"usage": _usage(drawn), "ajetc": _extension_fields(drawn)}
        return self._chunk(delta, drawn, more)

    def _chunk(
        self,
        delta: dict[str, Any],
        drawn: Completion | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        if drawn is not None:
            choice |= {"finish_reason": drawn.finish_reason, "stop_reason": drawn.stop_reason}
        chunk = {
            "id": f"chatcmpl-{self._id}",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._asked,
            "choices": [choice],
        }
        return sse_event({**chunk, **(more or {})})


def sse_event(data: Mapping[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def text_of(content: Any, kinds: Sequence[str] = ("text", "input_text", "output_text")) -> str:
    """Text of a string or of a list of parts; other parts are dropped."""
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


def _usage(drawn: Completion) -> dict[str, int]:
    prompt, sampled = len(drawn.prompt_tokens), len(drawn.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def _extension_fields(drawn: Completion) -> dict[str, Any]:
    return {"truncated": drawn.truncated, "step": drawn.step}


def _text_only(message: Message) -> dict[str, Any]:
    facts = message.model_dump(exclude_none=True)
    content = message.content
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else part.get("text") for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str))
    facts["content"] = content or ""
    return facts


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _scrub_all(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_scrub_all(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _scrub_all(item) for key, item in value.items()}
    return value
