"""Chat completions: the request parser and the dialect. No I/O."""

from typing import Any

from core.dialects.validation import (
    INTEGERS,
    Messages,
    bad_value,
    check_common,
    check_logprobs,
    check_numbers,
    check_tools,
    typed,
)
from core.dialects.writer import Writer
from core.openai.forms import text_part
from proxy.dialects.chat.writer import ChatWriter
from proxy.dialects.request import ChatRequest, Dialect, RequestReader, choice_fields, refusal_body

NOT_UPSTREAM = frozenset({"stream", "stream_options", "n"})

_FLAGS = ("stream", "logprobs", "parallel_tool_calls", "return_token_ids")


def _convert(body: dict[str, Any], _: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request for the upstream.

    Both names of reasoning in the history (`reasoning`, `reasoning_content`) pass unchanged, as do
    unknown fields, roles and content blocks. A content block that is a plain string, which vLLM
    accepts, is converted to a block of type `text`: AgentJet's workers fail on strings.
    """
    check(body)
    for message in body["messages"]:
        if isinstance(content := message.get("content"), list):
            message["content"] = [
                text_part(block) if isinstance(block, str) else block for block in content
            ]
    upstream = {key: value for key, value in body.items() if key not in NOT_UPSTREAM}
    return upstream, choice_fields(body)


read_request = RequestReader("chat", _convert)


def check(body: dict[str, Any]) -> None:
    """Check the fields as vLLM does; unknown fields and roles pass.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    typed(body, Messages, "body")
    check_numbers(body, (*INTEGERS, "top_logprobs"), _FLAGS)
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
