"""One request and one answer in the form that all dialects share. No I/O.

The form is that of a chat completion, the API of swarm servers: a dialect converts its own requests
to a chat completion and writes a `PublicAnswer` in its own format.

Log probabilities of an answer, split to match the deltas of a stream. No I/O.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text

_encode = msgspec.json.Encoder().encode


class DialectRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What the response to a request in any dialect depends on."""

    dialect: str = "chat"
    """Name of the dialect of the request and its response."""
    request_id: str
    """Part of the ids in the response."""
    body: dict[str, Any]
    """The request as a chat completion."""
    messages: list[dict[str, Any]]
    """The conversation in the form of chat completions, as in `body`."""
    include_usage: bool = False
    continuous_usage: bool = False
    prompt_tokens: int = 0
    """Estimated prompt tokens, reported in running usage until the upstream has counted them."""
    n: int = 1
    """Choices the client requested: the n best candidates, the winner first."""
    key: str
    """Equal for a retry of the request: same sender, same bytes."""
    extra: Any = None
    """Data for the dialect's own writer, such as fields that the response repeats."""
    parts: tuple["DialectRequest", ...] = ()
    """For a request with several prompts: one request per prompt."""


class PublicAnswer(msgspec.Struct, frozen=True):
    """The parts of an upstream's completion that a client receives."""

    content: str | None
    reasoning: str | None
    tool_calls: list[dict[str, Any]]
    """Each `{"id", "type": "function", "function": {"name", "arguments": str}}`, all keys set."""
    finish_reason: str
    """stop, length, tool_calls, or any other reason of the upstream."""
    stop_reason: Any
    logprobs: Any
    token_ids: Any
    usage: dict[str, Any]
    """Keys: `prompt_tokens`, `completion_tokens`, `total_tokens`, `prompt_tokens_details`,
    `completion_tokens_details`."""
    prompt_token_ids: Any = None
    prompt_logprobs: Any = None
    prompt_text: Any = None
    extension: dict[str, Any] = {}
    """Further fields of a whole answer that is no chat completion."""


def public_answer(completion: Mapping[str, Any]) -> PublicAnswer:
    """Extract the public parts of a completion that has a choice with a message."""
    choice = completion["choices"][0]
    message = choice["message"]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    calls = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    return PublicAnswer(
        content=valid_text(content_text(message.get("content"))) or None,
        reasoning=valid_text(content_text(reasoning)) or None,
        tool_calls=[_call(call) for call in calls if isinstance(call, dict)],
        finish_reason=str(choice.get("finish_reason") or "stop"),
        stop_reason=choice.get("stop_reason"),
        logprobs=choice.get("logprobs"),
        token_ids=choice.get("token_ids"),
        usage=_usage(completion.get("usage"), bool(reasoning)),
        prompt_token_ids=completion.get("prompt_token_ids"),
        prompt_logprobs=completion.get("prompt_logprobs"),
        prompt_text=completion.get("prompt_text"),
    )


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call; its id may be empty or that of another call, see `apply_tool_choice`."""
    call_id, function = call.get("id"), call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = _encode(arguments if arguments is not None else {}).decode()
    public_function = {
        "name": valid_text(str(function.get("name") or "")),
        "arguments": valid_text(arguments) if arguments.strip() else "{}",
    }
    call_id = call_id if isinstance(call_id, str) else ""
    return {"id": call_id, "type": "function", "function": public_function}


def new_call_id(*seeds: Any) -> str:
    """Return a tool call id in vLLM's form: a hash of `seeds`."""
    data = "\0".join(map(str, seeds)).encode(errors="replace")
    return f"chatcmpl-tool-{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def _usage(reported: Any, has_reasoning: bool) -> dict[str, Any]:
    reported = reported if isinstance(reported, dict) else {}
    prompt, completion = reported.get("prompt_tokens"), reported.get("completion_tokens")
    details = reported.get("completion_tokens_details")
    if not isinstance(details, dict):  # with reasoning the number is unknown
        details = None if has_reasoning else {"reasoning_tokens": 0}
    return _usage_fields(
        prompt if isinstance(prompt, int) else 0,
        completion if isinstance(completion, int) else 0,
        reported.get("prompt_tokens_details"),
        details,
    )


def _usage_fields(
    prompt: int, completion: int, prompt_details: Any = None, completion_details: Any = None
) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": prompt_details,
        "completion_tokens_details": completion_details,
    }


def usage_of(winners: Sequence[PublicAnswer], each: int = 0) -> dict[str, Any]:
    """Return the usage of an answer with several choices: prompts once, completions summed.

    Args:
        winners: One per choice; choices of the same prompt are adjacent.
        each: Choices per prompt; 0 when all have the same prompt.
    """
    if not winners:
        return _usage(None, False)
    if len(winners) == 1:
        return winners[0].usage
    usages = [winner.usage for winner in winners]
    completion = sum(usage["completion_tokens"] for usage in usages)
    if each and len(winners) > each:
        return _usage_fields(sum(usage["prompt_tokens"] for usage in usages[::each]), completion)
    counts = [
        (usage["completion_tokens_details"] or {}).get("reasoning_tokens") for usage in usages
    ]
    reasoning = [count for count in counts if isinstance(count, int)]
    return _usage_fields(
        usages[0]["prompt_tokens"],
        completion,
        usages[0]["prompt_tokens_details"],
        {"reasoning_tokens": sum(reasoning)} if len(reasoning) == len(usages) else None,
    )


def text_deltas(answer: PublicAnswer) -> list[dict[str, str]]:
    """Return the deltas of a chat stream with the texts of an answer: reasoning, then content."""
    texts = {"reasoning": answer.reasoning, "content": answer.content}
    return [{kind: text} for kind, text in texts.items() if text]


def call_deltas(answer: PublicAnswer) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a chat stream with the tool calls of an answer.

    The first delta of a tool call has its index, id, type and name, the next one its arguments.
    """
    for index, call in enumerate(answer.tool_calls):
        yield call_start_delta(index, call["id"], call["function"]["name"])
        if arguments := call["function"]["arguments"]:
            yield call_arguments_delta(index, arguments)


def call_start_delta(index: int, call_id: str, function_name: str) -> dict[str, Any]:
    """Return the delta with a call's id and function name, without arguments."""
    call = {"id": call_id, "type": "function", "index": index, "function": {"name": function_name}}
    return {"content": None, "tool_calls": [call]}


def call_arguments_delta(index: int, arguments: str) -> dict[str, Any]:
    """Return a delta with a part of a call's arguments."""
    call = {"index": index, "function": {"arguments": arguments}}
    return {"content": None, "tool_calls": [call]}


def valid_text(text: str) -> str:
    """Return `text` in encodable form: surrogate pairs joined, lone surrogates as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


# --- log probabilities ----------------------------------------------------------------------------

Entry = dict[str, Any]
"""One token: `{"token", "logprob", "bytes", "top_logprobs"}`."""


def token_entries(logprobs: Any) -> list[Entry]:
    """Return the tokens of a choice's `logprobs`; empty when it has none."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        return []
    return content


def requested_tokens(request: DialectRequest, answer: PublicAnswer) -> list[Entry]:
    """Return the tokens of an answer if their log probabilities are requested."""
    return token_entries(answer.logprobs) if request.body.get("logprobs") else []


def token_bytes(entry: Entry) -> bytes:
    """Return the text of one token as UTF-8 bytes, possibly only a part of a character."""
    values = entry.get("bytes")
    if isinstance(values, list):
        try:
            return bytes(values)
        except (TypeError, ValueError):
            pass
    return str(entry.get("token") or "").encode(errors="replace")


def alternatives(entry: Entry) -> list[Entry]:
    """Return the alternatives of a token."""
    tops = entry.get("top_logprobs")
    return [top for top in tops if isinstance(top, dict)] if isinstance(tops, list) else []


DeltaTokens = tuple[dict[str, Any], list[Entry]]
"""A delta and its tokens."""


def walk(answer: PublicAnswer, entries: list[Entry]) -> tuple[list[DeltaTokens], list[Entry]]:
    """Split an answer into the deltas of a chat stream, each with the tokens of its text.

    A text has the tokens before it too; if the tokens do not add up to it, it has none.

    Args:
        answer: The complete answer.
        entries: Its tokens; empty if they are not requested.

    Returns:
        The deltas, and the tokens after all texts; the first call has those of all calls.
    """
    result: list[DeltaTokens] = []
    for delta in text_deltas(answer):
        count = _count_up_to(delta, entries)
        result.append((delta, entries[:count]))
        entries = entries[count:]
    calls: list[DeltaTokens] = [(delta, []) for delta in call_deltas(answer)]
    if not calls:
        return result, entries
    calls[0] = (calls[0][0], entries)
    return result + calls, []


def _count_up_to(delta: dict[str, str], entries: list[Entry]) -> int:
    """Return the number of tokens up to the end of a text; 0 if none ends or begins there."""
    ((kind, text),) = delta.items()
    blobs = [token_bytes(entry) for entry in entries]
    joined, blob = b"".join(blobs), text.encode()
    begin = joined.rfind(blob) if kind == "content" else joined.find(blob)
    borders = list(accumulate(map(len, blobs), initial=0))
    aligned = begin >= 0 and {begin, begin + len(blob)} <= set(borders)
    return borders.index(begin + len(blob)) if aligned else 0
