"""Log probabilities of an answer, split to match the deltas of a stream. No I/O."""

from itertools import accumulate
from typing import Any

from core.dialects.request import DialectRequest, PublicAnswer, call_deltas, text_deltas

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
