"""The fields of requests, for the OpenAPI document; the dialects check them on their own."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Tokens = list[Annotated[int, Meta(ge=0)]]
Object = dict[str, Any]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Message(Struct):
    """One message of a conversation."""

    role: str
    content: str | list[Object] | UnsetType = UNSET
    tool_calls: list[Object] | UnsetType = UNSET


class Sampling(Struct, kw_only=True):
    """Fields of all dialects."""

    model: str | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
    stream_options: Object | UnsetType = UNSET
    temperature: Annotated[float, Meta(ge=0, le=2)] | UnsetType = UNSET
    top_p: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    top_k: Annotated[int, Meta(ge=-1)] | UnsetType = UNSET
    min_p: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    presence_penalty: Penalty | UnsetType = UNSET
    frequency_penalty: Penalty | UnsetType = UNSET
    repetition_penalty: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    max_tokens: Count | UnsetType = UNSET
    max_completion_tokens: Count | UnsetType = UNSET
    min_tokens: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    n: Annotated[int, Meta(ge=1, le=8)] | UnsetType = UNSET
    stop: str | list[str] | UnsetType = UNSET
    logit_bias: dict[str, float] | UnsetType = UNSET
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | UnsetType = UNSET
    response_format: Object | UnsetType = UNSET
    structured_outputs: Object | UnsetType = UNSET
    reasoning_effort: str | UnsetType = UNSET
    chat_template_kwargs: Object | UnsetType = UNSET
    user: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    metadata: Object | UnsetType = UNSET
    client_metadata: Object | UnsetType = UNSET
    prompt_cache_key: str | UnsetType = UNSET


class ChatCompletionRequest(Sampling, kw_only=True):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    tools: list[Object] | UnsetType = UNSET
    tool_choice: str | Object | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    logprobs: bool | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | UnsetType = UNSET
    return_token_ids: bool | UnsetType = UNSET


class CompletionRequest(Sampling, kw_only=True):
    """Body of `/v1/completions`."""

    prompt: str | list[str | Annotated[int, Meta(ge=0)] | Tokens]
    echo: bool | UnsetType = UNSET
    suffix: str | UnsetType = UNSET
    prompt_embeds: str | UnsetType = UNSET
    logprobs: Annotated[int, Meta(ge=0, le=5)] | UnsetType = UNSET


class ResponsesRequest(Sampling, kw_only=True):
    """Body of `/v1/responses`."""

    input: str | list[Object]
    instructions: str | UnsetType = UNSET
    tools: list[Object] | UnsetType = UNSET
    tool_choice: str | Object | UnsetType = UNSET
    parallel_tool_calls: bool | UnsetType = UNSET
    max_output_tokens: Count | UnsetType = UNSET
    max_tool_calls: int | UnsetType = UNSET
    text: Object | UnsetType = UNSET
    reasoning: Object | UnsetType = UNSET
    include: list[str] | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | UnsetType = UNSET
    truncation: str | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    store: bool | UnsetType = UNSET
    background: bool | UnsetType = UNSET
    previous_response_id: str | UnsetType = UNSET
    conversation: str | Object | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    prompt: Object | UnsetType = UNSET


class CountTokensRequest(Sampling, kw_only=True):
    """Body of `/v1/messages/count_tokens`."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    system: str | list[Object] | UnsetType = UNSET
    tools: list[Object] | UnsetType = UNSET
    tool_choice: Object | UnsetType = UNSET
    thinking: Object | UnsetType = UNSET
    thread: Object | UnsetType = UNSET


class MessagesRequest(CountTokensRequest, kw_only=True):
    """Body of `/v1/messages`."""

    max_tokens: Count
    stop_sequences: list[str] | UnsetType = UNSET
    output_config: Object | UnsetType = UNSET


class TokenizeRequest(Struct):
    """Body of `/tokenize`: a prompt or messages."""

    model: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    messages: list[Message] | UnsetType = UNSET


class DetokenizeRequest(Struct):
    """Body of `/detokenize`."""

    tokens: Tokens
    model: str | UnsetType = UNSET


_BODIES = (
    ChatCompletionRequest,
    CompletionRequest,
    ResponsesRequest,
    MessagesRequest,
    CountTokensRequest,
    TokenizeRequest,
    DetokenizeRequest,
)


def schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of all bodies by name."""
    return msgspec.json.schema_components(_BODIES, ref_template="#/components/schemas/{name}")[1]


def body(kind: type[Struct]) -> dict[str, Any]:
    """Return what the document says of a route with such a body."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def streamed(kind: type[Struct]) -> dict[str, Any]:
    """Return what the document says of a route with such a body, whose answer may be a stream."""
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    return {**body(kind), "responses": {"200": {"content": events}}}
