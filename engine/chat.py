"""The chat route's inside: keys, request bodies, answers. Nothing here touches the pool.

Source: protocol sections 3 and 5. What the real server answers with a plain 500 (a body that is no
JSON, or no chat request) is a 4xx here; no system message of its own is put before the
conversation, because the embedded policy was never trained with one.
"""

import base64
import binascii
import hmac
import json
import re
import time
import uuid
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.jobs import Job
from engine.lifecycle import Refused
from engine.policy import Completion, SamplingParams
from engine.pool import EpisodeType

_PREFIX = "sk-ajet-"
_NOISE = re.compile(r"Bearer |bearer |sk-ajet-")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Key:
    """What an episode's API key says."""

    episode_uuid: str
    address: str

    def opens(self, address: str) -> bool:
        """Whether the key was given out for the record with this address."""
        return hmac.compare_digest(self.address.encode(), address.encode())


def make_key(episode_uuid: str, address: str) -> str:
    """The API key of an episode."""
    facts = {
        "agent_name": "default_agent_name",
        "target_tag": "default_target_tag",
        "episode_uuid": episode_uuid,
        "episode_address": address,
    }
    return _PREFIX + base64.b64encode(json.dumps(facts).encode()).decode()


def parse_key(header: str | None) -> Key:
    """Read an Authorization header, with or without `Bearer `.

    Raises:
        Refused: 401, in the words of the real server.
    """
    if not header:
        raise Refused(401, "Missing authorization header")
    try:
        facts = json.loads(base64.b64decode(_NOISE.sub("", header).strip(), validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise Refused(401, "Invalid authorization header: not a key of this server") from error
    if not isinstance(facts, dict):
        raise Refused(401, "Invalid authorization data")
    names = [facts.get(name) for name in ("agent_name", "target_tag", "episode_uuid")]
    if not all(isinstance(name, str) and name for name in names):
        raise Refused(401, "Invalid authorization data")
    return Key(
        episode_uuid=_scrub(str(facts["episode_uuid"])),
        address=_scrub(str(facts.get("episode_address", ""))),
    )


class Message(BaseModel):
    """One message in the OpenAI form; unknown fields are kept for the template."""

    model_config = ConfigDict(extra="allow")
    role: str = Field(min_length=1)
    content: str | list[dict[str, Any]] | None = None


Finite = Annotated[float, Field(allow_inf_nan=False)]


class ChatRequest(BaseModel):
    """What of a chat request is read; the rest is ignored, as on the real server."""

    messages: list[Message] = Field(min_length=1)
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[Finite, Field(ge=0, le=100)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None

    def conversation(self) -> list[dict[str, Any]]:
        """Messages as the policy wants them: of content lists only the text survives."""
        return [_flat(message) for message in self.messages]

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """Tools the policy may call."""
        return None if self.tool_choice == "none" else self.tools or None


def parse_body(body: bytes) -> tuple[ChatRequest, dict[str, Any]]:
    """Read a request body; also returns it as it came.

    Raises:
        Refused: 400, not JSON.
        RequestValidationError: JSON, but no chat request.
    """
    try:
        raw = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The request body is not JSON: {error}") from error
    if b"\\ud" in body or b"\\uD" in body:
        raw = _scrub_all(raw)
    try:
        return ChatRequest.model_validate(raw), raw
    except ValidationError as error:
        raise RequestValidationError(
            [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        ) from error


def answer_limit(job: Job, context: int, request: ChatRequest | None = None) -> int:
    """Longest answer in tokens: the job's, never more than half the window, or less if asked."""
    limit = min(job.max_tokens or SamplingParams().max_tokens, max(1, context // 2))
    asked = [] if request is None else [request.max_tokens, request.max_completion_tokens]
    return min([limit, *(count for count in asked if count is not None)])


def sampling(request: ChatRequest, job: Job, kind: EpisodeType, limit: int) -> SamplingParams:
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


def response(drawn: Completion, policy_name: str) -> dict[str, Any]:
    """The answer as a chat completion; `ajetc` is ours, clients ignore what they do not know."""
    message: dict[str, Any] = {"role": "assistant", "content": drawn.text}
    if drawn.tool_calls:
        message["content"] = drawn.text or None
        message["tool_calls"] = [
            {
                "id": f"call_{uuid.uuid4().hex}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in drawn.tool_calls
        ]
    prompt, sampled = len(drawn.prompt_tokens), len(drawn.tokens)
    return {
        "id": uuid.uuid4().hex,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": policy_name,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": drawn.finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
        },
        "ajetc": {"truncated": drawn.truncated, "step": drawn.step},
    }


def stream(whole: dict[str, Any], model: str | None) -> bytes:
    """The answer as server-sent events: role, whole content, end with usage, `[DONE]`."""
    choice = whole["choices"][0]
    message = choice["message"]
    content: dict[str, Any] = {"content": message["content"]}
    if "tool_calls" in message:
        content["tool_calls"] = [
            {"index": index, **call} for index, call in enumerate(message["tool_calls"])
        ]
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        (content, None),
        ({"content": ""}, choice["finish_reason"]),
    ]
    events = []
    for delta, finish_reason in deltas:
        chunk = {
            "id": f"chatcmpl-{whole['id']}",
            "object": "chat.completion.chunk",
            "created": whole["created"],
            "model": model or whole["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        }
        if finish_reason is not None:
            chunk |= {"usage": whole["usage"], "ajetc": whole["ajetc"]}
        events.append(json.dumps(chunk, ensure_ascii=False))
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def _flat(message: Message) -> dict[str, Any]:
    facts = message.model_dump(exclude_none=True)
    content = message.content
    if isinstance(content, list):
        parts = [part.get("text") for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str))
    facts["content"] = content or ""
    return facts


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _scrub(text: str) -> str:
    """Half of a surrogate pair cannot be encoded; JSON can carry it all the same."""
    return _SURROGATE.sub("\ufffd", text)


def _scrub_all(value: Any) -> Any:
    if isinstance(value, str):
        return _scrub(value)
    if isinstance(value, list):
        return [_scrub_all(item) for item in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub_all(item) for key, item in value.items()}
    return value
