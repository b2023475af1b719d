"""Chat completions: the request parser and the dialect. No I/O."""

from collections.abc import Mapping
from typing import Any

from proxy.dialects.base import Dialect
from proxy.dialects.chat.writer import ChatWriter
from proxy.dialects.common import (
    decode,
    integer,
    join_key,
    last_user_text,
    refusal_body,
    request_id,
    trains,
)
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import session_of
from proxy.dialects.validation import (
    bad_value,
    check_common,
    check_logprobs,
    check_messages,
    check_numbers,
    check_tools,
    is_ordinary,
)
from proxy.dialects.writer import Writer

NOT_UPSTREAM = frozenset({"stream", "stream_options", "n"})

_FLAGS = ("stream", "logprobs", "parallel_tool_calls", "return_token_ids")


def read_request(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check one request.

    Both names of reasoning in the history (`reasoning`, `reasoning_content`) pass unchanged, as do
    unknown fields, roles and content blocks. A content block that is a plain string, which vLLM
    accepts, is converted to a block of type `text`: AgentJet's workers fail on strings.

    Args:
        data: The raw body.
        headers: The request's headers; names in lower case.
        client: The client's address; with key and session it identifies the sender.

    Raises:
        ApiError: The request is invalid; vLLM refuses it too.
    """
    body = decode(data, headers.get("content-type", ""))
    check(body)
    train = trains(headers)
    options = body.get("stream_options") or {}
    session = session_of(headers, body)
    messages = body["messages"]
    for message in messages:
        if isinstance(content := message.get("content"), list):
            message["content"] = [_typed(block) for block in content]
    return ChatRequest(
        request_id=request_id(headers),
        body={key: value for key, value in body.items() if key not in NOT_UPSTREAM},
        messages=messages,
        query=last_user_text(messages),
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        n=body.get("n") or 1,
        train=train,
        session=session,
        key=join_key(data, headers, client, session, train),
        address=client,
        headers=headers,
    )


def _typed(block: Any) -> Any:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def check(body: dict[str, Any]) -> None:
    """Check the fields as vLLM does; unknown fields and roles pass.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    check_messages(body)
    if body["messages"] and is_ordinary(body):
        return
    check_numbers(body, flags=_FLAGS)
    if (value := body.get("top_logprobs")) is not None:
        body["top_logprobs"] = integer("top_logprobs", value)
    check_common(body)
    check_tools(body)
    if not body["messages"]:
        raise bad_value("messages must contain at least one message.", "messages")
    count = body.get("top_logprobs")
    if count and not body.get("logprobs"):
        text = "when using `top_logprobs`, `logprobs` must be set to true."
        raise bad_value(text, "top_logprobs")
    check_logprobs(count, "top_logprobs")


def chat_dialect(reasoning: str = "reasoning") -> Dialect:
    """Return the dialect of chat completions.

    Args:
        reasoning: Name of the response field for reasoning: `reasoning` as in current vLLM, or
            `reasoning_content` as in older versions.
    """

    def writer(request: ChatRequest, model: str, created: int) -> Writer:
        return ChatWriter(request, model, created, reasoning)

    return Dialect("chat", read_request, writer, refusal_body)


CHAT = chat_dialect()
