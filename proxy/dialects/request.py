"""One request and one answer in the form all dialects share, without I/O.

The form is that of a chat completion, which is what swarm servers speak: a dialect reads its own
requests into a `ChatRequest` and writes a `PublicAnswer` in its own words.
"""

import hashlib
import secrets
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text

_encode = msgspec.json.Encoder().encode

PIECES = 8
"""Chunks a text is cut into at most: a winner that is known whole leaves as a burst."""
SHORTEST = 16
"""Characters a piece has at least."""
_LETTERS_BEHIND = "\u0e33\u0eb3"
"""Thai and Lao vowels that are letters to Unicode and part of the one before to a reader."""


class ChatRequest(msgspec.Struct, kw_only=True, frozen=True):
    """One user request, whatever the dialect it came in."""

    dialect: str = "chat"
    """Name of the dialect it is answered in."""
    request_id: str
    """The client's own `X-Request-Id`, else 16 hex digits."""
    body: dict[str, Any]
    """The chat completion asked of the upstream: no stream, one answer, in training the run's
    temperature. Fields we do not know are in it untouched."""
    messages: list[dict[str, Any]]
    """In the form of chat completions, as in `body`."""
    query: str
    """Text of the last user message."""
    model: str
    """As it was asked for; may be empty."""
    stream: bool
    include_usage: bool = False
    continuous_usage: bool = False
    prompt_tokens: int = 0
    """What running usage says of the prompt until the upstream has counted it."""
    n: int = 1
    """Choices the client asked for: the n best candidates, the winner first."""
    train: bool = True
    """False answers from one candidate and trains on nothing."""
    helper: str = ""
    """Name of the rule that took it for a helper call (a title, a summary); empty for none."""
    session: str = ""
    """The conversation the client says it is in; empty when it does not."""
    key: str
    """Equal for a request sent again: same sender, same bytes."""
    address: str = ""
    """Where its connection comes from."""
    idle: bool = False
    """Its connection is new, or was idle for `proxy.http.protocol.IDLE` seconds before it."""
    headers: Mapping[str, str]
    """Lower-case names."""
    extra: Any = None
    """What the dialect's own writer needs of the request, as the fields it has to repeat."""
    shown: list[dict[str, Any]] | None = None
    """`messages` with a short text in place of each image; None when they hold no image."""
    parts: tuple["ChatRequest", ...] = ()
    """Of a request with several prompts: one for each, a group of its own. Else empty."""

    @property
    def seeds(self) -> bool:
        """Whether each candidate has a seed of its own: with one seed all choices are the same."""
        return self.n > 1 and isinstance(self.body.get("seed"), int)

    def body_of(self, index: int) -> dict[str, Any]:
        """`body` for one candidate. Of several choices each has the next seed, as in a vLLM."""
        return {**self.body, "seed": self.body["seed"] + index} if self.seeds else self.body

    def encoded(self, index: int = 0) -> bytes:
        """`body_of` as bytes."""
        return _encode(self.body_of(index))


class PublicAnswer(msgspec.Struct, frozen=True):
    """The parts of an upstream's completion that a client gets to see."""

    content: str | None
    reasoning: str | None
    tool_calls: list[dict[str, Any]]
    """`{"id", "type": "function", "function": {"name", "arguments": str}}`, every key there."""
    finish_reason: str
    """stop, length or tool_calls, or what else the upstream says."""
    stop_reason: Any
    logprobs: Any
    token_ids: Any
    usage: dict[str, Any]
    """`prompt_tokens`, `completion_tokens`, `total_tokens`, `prompt_tokens_details`,
    `completion_tokens_details`."""
    prompt_token_ids: Any = None
    prompt_logprobs: Any = None
    prompt_text: Any = None


def public_answer(completion: Mapping[str, Any]) -> PublicAnswer:
    """Read a completion that has a choice with a message."""
    choice = completion["choices"][0]
    message = choice["message"]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    calls = message.get("tool_calls")
    return PublicAnswer(
        content=whole_text(content_text(message.get("content"))) or None,
        reasoning=whole_text(content_text(reasoning)) or None,
        tool_calls=_calls(calls, completion.get("id")) if isinstance(calls, list) else [],
        finish_reason=str(choice.get("finish_reason") or "stop"),
        stop_reason=choice.get("stop_reason"),
        logprobs=choice.get("logprobs"),
        token_ids=choice.get("token_ids"),
        usage=_usage(completion.get("usage"), bool(reasoning)),
        prompt_token_ids=completion.get("prompt_token_ids"),
        prompt_logprobs=completion.get("prompt_logprobs"),
        prompt_text=completion.get("prompt_text"),
    )


def _calls(calls: list[Any], completion_id: Any) -> list[dict[str, Any]]:
    """The calls with ids that differ; equal each time the same completion is read."""
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    for call in calls:
        if not isinstance(call, dict):
            continue
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = _encode(arguments if arguments is not None else {}).decode()
        given = call.get("id")
        if not isinstance(given, str) or not given or given in seen:
            given = call_id(completion_id, len(found))
        seen.add(given)
        told = {
            "name": whole_text(str(function.get("name") or "")),
            "arguments": whole_text(arguments) if arguments.strip() else "{}",
        }
        found.append({"id": given, "type": "function", "function": told})
    return found


def call_id(*of: Any) -> str:
    """A tool call's id in vLLM's form, the same for the same facts; by chance without them."""
    if not of or not of[0]:
        return f"chatcmpl-tool-{secrets.token_hex(8)}"
    said = "\0".join(map(str, of)).encode(errors="replace")
    return f"chatcmpl-tool-{hashlib.blake2b(said, digest_size=8).hexdigest()}"


def _usage(told: Any, reasons: bool) -> dict[str, Any]:
    told = told if isinstance(told, dict) else {}
    prompt, completion = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    details = told.get("completion_tokens_details")
    if not isinstance(details, dict) and not reasons:
        details = {"reasoning_tokens": 0}  # with reasoning in it the number is not known
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": told.get("prompt_tokens_details"),
        "completion_tokens_details": details if isinstance(details, dict) else None,
    }


def _count(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) else 0


def usage_of(winners: Sequence[PublicAnswer], each: int = 0) -> dict[str, Any]:
    """Usage of an answer with several choices: each prompt once, the completions summed.

    Args:
        winners: One for each choice, those of one prompt side by side.
        each: How many are of one prompt; 0 when all are.
    """
    if each and len(winners) > each:
        groups = [usage_of(winners[at : at + each]) for at in range(0, len(winners), each)]
        names = ("prompt_tokens", "total_tokens", "completion_tokens")
        summed = {name: sum(one[name] for one in groups) for name in names}
        return {**summed, "prompt_tokens_details": None, "completion_tokens_details": None}
    if len(winners) == 1:
        return winners[0].usage
    if not winners:
        return _usage(None, False)
    completion = sum(one.usage["completion_tokens"] for one in winners)
    first = winners[0].usage
    reasons = [one.usage["completion_tokens_details"] for one in winners]
    counts = [told.get("reasoning_tokens") for told in reasons if told]
    known = [count for count in counts if isinstance(count, int)]
    return {
        "prompt_tokens": first["prompt_tokens"],
        "total_tokens": first["prompt_tokens"] + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": first["prompt_tokens_details"],
        "completion_tokens_details": (
            {"reasoning_tokens": sum(known)} if len(known) == len(winners) else None
        ),
    }


def deltas(one: PublicAnswer, reasoning: str = "reasoning") -> Iterator[dict[str, Any]]:
    """A winner as the deltas of a chat stream: reasoning, text, then the tool calls.

    A tool call is first told by index, id, type and name, then by pieces of its arguments.

    Args:
        one: The winner.
        reasoning: The field its reasoning is told in.
    """
    for piece in pieces(one.reasoning or ""):
        yield {reasoning: piece}
    for piece in pieces(one.content or ""):
        yield {"content": piece}
    yield from call_deltas(one)


def call_deltas(one: PublicAnswer) -> Iterator[dict[str, Any]]:
    """The tool calls of a winner as the deltas of a chat stream."""
    for index, call in enumerate(one.tool_calls):
        yield call_begins(index, call["id"], call["function"]["name"])
        for piece in pieces(call["function"]["arguments"]):
            yield call_goes_on(index, piece)


def call_begins(index: int, name: str, function: str) -> dict[str, Any]:
    """The delta that tells a call's id and function, without arguments."""
    told = {"id": name, "type": "function", "index": index, "function": {"name": function}}
    return {"content": None, "tool_calls": [told]}


def call_goes_on(index: int, arguments: str) -> dict[str, Any]:
    """A delta with a piece of a call's arguments."""
    told = {"index": index, "function": {"arguments": arguments}}
    return {"content": None, "tool_calls": [told]}


# --- text ---------------------------------------------------------------------------------------


def pieces(text: str) -> Iterator[str]:
    """`text` in at most `PIECES` parts, none empty, none beginning within a character as seen."""
    size = max(SHORTEST, -(-len(text) // PIECES))
    start = 0
    while start < len(text):
        end = start + size
        while end < len(text) and goes_on(text[end - 1], text[end]):
            end += 1
        yield text[start:end]
        start = end


def goes_on(before: str, after: str) -> bool:
    """Whether two neighbours belong to one character as a reader sees it: marks, joiners, tones,
    flags, and the two halves of a line end."""
    if after < "\u0300":
        return before == "\r" and after == "\n"
    if before == "\u200d" or after == "\u200d" or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\U0001f1e6" <= after <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff":
        return True
    return after in _LETTERS_BEHIND or unicodedata.category(after) in ("Mn", "Me", "Mc", "Cf")


def whole_text(text: str) -> str:
    """`text` with half surrogate pairs joined, and lone ones as U+FFFD: it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
