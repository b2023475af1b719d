"""Log probabilities of a winner, cut into the pieces of a stream. No I/O."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from proxy.dialects.request import PIECES, SHORTEST, goes_on, pieces

Entry = dict[str, Any]
"""`{"token", "logprob", "bytes", "top_logprobs"}`, one for each token."""


def entries_of(logprobs: Any) -> list[Entry]:
    """The tokens of a choice's `logprobs`; empty when it has none."""
    found = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return []
    return found


def token_bytes(entry: Entry) -> bytes:
    """The text of one token, perhaps a part of a character only."""
    raw = entry.get("bytes")
    if isinstance(raw, list):
        try:
            return bytes(raw)
        except (TypeError, ValueError):
            pass
    return str(entry.get("token") or "").encode(errors="replace")


class AlignedTokens:
    """Tokens next to the texts they make up: each text is cut between tokens, in order.

    Args:
        entries: All tokens of the winner, also those that are no text of it.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = list(entries)
        self._blobs = [token_bytes(one) for one in entries]
        self._joined = b"".join(self._blobs)
        self._starts = list(accumulate(map(len, self._blobs), initial=0))
        self._next = 0

    def cut(self, text: str, last: bool) -> list[tuple[str, list[Entry]]]:
        """`text` in pieces with their tokens; the first also has the tokens between it and the
        text before. Where the tokens do not make up the text its pieces have none.

        Args:
            text: Not empty.
            last: No text comes after it.
        """
        wanted = text.encode()
        find = self._joined.rfind if last else self._joined.find
        at = find(wanted, self._starts[self._next])
        first = self._place(at)
        end = self._place(at + len(wanted))
        if at < 0 or first is None or end is None:
            return [(piece, []) for piece in pieces(text)]
        found: list[tuple[str, list[Entry]]] = []
        for stop, piece in self._pieces(first, end, len(text)):
            found.append((piece, self._entries[self._next : stop]))
            self._next = stop
        return found

    def rest(self) -> list[Entry]:
        """The tokens after all texts."""
        return self._entries[self._next :]

    def _place(self, offset: int) -> int | None:
        """The first token that begins at a byte, past those that are empty."""
        place = self._next
        while place < len(self._blobs) and self._starts[place] < offset:
            place += 1
        return place if self._starts[place] == offset else None

    def _pieces(self, first: int, end: int, length: int) -> Iterator[tuple[int, str]]:
        """The piece that ends before each of some tokens, and that token."""
        size = max(SHORTEST, -(-length // PIECES))
        held = b""
        for place in range(first, end):
            held += self._blobs[place]
            if place + 1 == end or (
                len(held) >= size and self._may_end(held, self._blobs[place + 1])
            ):
                yield place + 1, held.decode()
                held = b""

    @staticmethod
    def _may_end(held: bytes, following: bytes) -> bool:
        try:
            text, after = held.decode(), following.decode(errors="replace")
        except UnicodeDecodeError:
            return False
        return bool(after) and not goes_on(text[-1], after[0])
