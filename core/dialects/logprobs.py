"""Log probabilities of an answer, split to match the deltas of a stream. No I/O."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from core.dialects.request import (
    MIN_PIECE_CHARS,
    MOST_PIECES,
    DialectRequest,
    PublicAnswer,
    call_deltas,
    deltas,
    pieces,
    same_character,
)

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

    Args:
        answer: The complete answer.
        entries: Its tokens; empty if they are not requested.

    Returns:
        The deltas, and the tokens after all texts; the first call has those of all calls.
    """
    if not entries:
        return [(delta, []) for delta in deltas(answer)], []
    aligned = AlignedTokens(entries)
    result: list[DeltaTokens] = []
    for kind, text in (("reasoning", answer.reasoning), ("content", answer.content)):
        if text:
            split = aligned.cut(text, last=kind == "content")
            result += [({kind: piece}, tokens) for piece, tokens in split]
    calls: list[DeltaTokens] = [(delta, []) for delta in call_deltas(answer)]
    if not calls:
        return result, aligned.rest()
    calls[0] = (calls[0][0], aligned.rest())
    return result + calls, []


class AlignedTokens:
    """Splitter of an answer's texts at token boundaries, one text after the other.

    Args:
        entries: All tokens of the answer, including those outside its texts.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)
        self._blobs = [token_bytes(entry) for entry in entries]
        self._joined = b"".join(self._blobs)
        self._starts = list(accumulate(map(len, self._blobs), initial=0))
        self._next = 0

    def cut(self, text: str, last: bool) -> list[tuple[str, list[Entry]]]:
        """Split `text` into pieces and return each with its tokens.

        The first piece also has the tokens between the previous text and this one. If the tokens
        do not add up to the text, its pieces have none.

        Args:
            text: Not empty.
            last: No other text follows.
        """
        blob = text.encode()
        search = self._joined.rfind if last else self._joined.find
        offset = search(blob, self._starts[self._next])
        first = self._token_at(offset)
        end = self._token_at(offset + len(blob))
        if offset < 0 or first is None or end is None:
            return [(piece, []) for piece in pieces(text)]
        result: list[tuple[str, list[Entry]]] = []
        for next_token, piece in self._split(first, end, len(text)):
            result.append((piece, self._entries[self._next : next_token]))
            self._next = next_token
        return result

    def rest(self) -> list[Entry]:
        """Return the tokens after all texts."""
        return self._entries[self._next :]

    def _token_at(self, offset: int) -> int | None:
        """Return the index of the first token that begins at a byte; None if none does."""
        index = self._next
        while index < len(self._blobs) and self._starts[index] < offset:
            index += 1
        return index if self._starts[index] == offset else None

    def _split(self, first: int, end: int, length: int) -> Iterator[tuple[int, str]]:
        """Split tokens `first` to `end` into texts; yield (index after its last token, text)."""
        size = max(MIN_PIECE_CHARS, -(-length // MOST_PIECES))
        blob = b""
        for index in range(first, end):
            blob += self._blobs[index]
            if index + 1 == end or (
                len(blob) >= size and self._may_end(blob, self._blobs[index + 1])
            ):
                yield index + 1, blob.decode()
                blob = b""

    @staticmethod
    def _may_end(blob: bytes, next_blob: bytes) -> bool:
        try:
            text, after = blob.decode(), next_blob.decode(errors="replace")
        except UnicodeDecodeError:
            return False
        return bool(after) and not same_character(text[-1], after[0])
