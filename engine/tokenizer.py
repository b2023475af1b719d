"""Byte-level BPE of 1024 tokens: 256 bytes, six control tokens, 762 merges; any UTF-8 round-trips.

Digits are single tokens. No text encodes to a control token ("tag").
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

VOCAB = 1024
SYSTEM, USER, ANSWER, END, TOOL, CALL = range(256, 262)
"""Tags: system part, user turn, answer, end of answer, tool result, tool list or call."""
FIRST_MERGE = 262
TAGS = frozenset(range(256, FIRST_MERGE))
TEMPLATE_ONLY = (SYSTEM, USER, ANSWER, TOOL)
"""Tags that an answer can never contain."""

_PIECE = re.compile(r" ?(?:[^\W\d_]{1,24}|[^\w\s]{1,8}|_{1,8})|\d|\s")
_DATA = Path(__file__).parent / "data"


class Tokenizer:
    """Converter between text and token ids."""

    def __init__(self, merges: Sequence[tuple[int, int]]) -> None:
        self._rank = {pair: FIRST_MERGE + i for i, pair in enumerate(merges)}
        self._bytes = [bytes([i]) for i in range(256)] + [b""] * len(TAGS)
        for left, right in merges:
            self._bytes.append(self._bytes[left] + self._bytes[right])
        self.longest = max(map(len, self._bytes))
        """Most bytes, and so most characters, of one token."""
        self._cache: dict[str, tuple[int, ...]] = {}

    @classmethod
    def shipped(cls) -> Self:
        """Return the tokenizer of the base weights."""
        return cls(load_merges(_DATA / "merges.txt"))

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, never a tag; lone surrogates become question marks."""
        ids: list[int] = []
        for piece in _PIECE.findall(text):
            encoded = self._cache.get(piece)
            if encoded is None:
                encoded = self._merge(piece.encode("utf-8", "replace"))
                if len(self._cache) < 20_000:
                    self._cache[piece] = encoded
            ids.extend(encoded)
        return ids

    def _merge(self, data: bytes) -> tuple[int, ...]:
        ids = list(data)
        while len(ids) > 1:
            pairs = [self._rank.get(pair, VOCAB) for pair in pairwise(ids)]
            best = min(pairs)
            if best == VOCAB:
                break
            at = pairs.index(best)
            ids[at : at + 2] = [best]
        return tuple(ids)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`; tags are empty."""
        table = self._bytes
        return b"".join(table[i] for i in ids if i < len(table))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`; invalid UTF-8 is dropped."""
        return self.decode_bytes(ids).decode("utf-8", "ignore")


def train(texts: Iterable[str], vocab: int = VOCAB) -> list[tuple[int, int]]:
    """Learn the merges of `texts`: the most frequent pair first, ties to the lower ids."""
    words = Counter(piece for text in texts for piece in _PIECE.findall(text))
    parts = [(list(word.encode("utf-8")), count) for word, count in sorted(words.items())]
    merges: list[tuple[int, int]] = []
    for new in range(FIRST_MERGE, vocab):
        pairs: Counter[tuple[int, int]] = Counter()
        for ids, count in parts:
            for pair in pairwise(ids):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]))
        merges.append(best)
        for ids, _ in parts:
            at = 0
            while at < len(ids) - 1:
                if (ids[at], ids[at + 1]) == best:
                    ids[at : at + 2] = [new]
                at += 1
    return merges


def save_merges(path: Path, merges: Sequence[tuple[int, int]]) -> None:
    """Write one merge per line."""
    path.write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="ascii")


def load_merges(path: Path) -> list[tuple[int, int]]:
    """Read a file of `save_merges`."""
    merges = []
    for line in path.read_text(encoding="ascii").split("\n"):
        if line:
            left, right = line.split()
            merges.append((int(left), int(right)))
    return merges
