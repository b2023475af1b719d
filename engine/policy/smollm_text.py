"""SmolLM2's text: its byte-level BPE, read from the model file, and its ChatML template.

Sources: Radford et al. 2019 for byte-level BPE and its pre-tokenization; the model's own tokenizer
configuration, which makes digits single tokens, and its chat template.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from engine.interface import Prompt
from engine.policy import chat_template

END, BEGIN = "<|im_end|>", "<|im_start|>"
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
LONGEST_PIECE = 96
"""Longer runs of one kind of character are split: merging is quadratic in the length of a piece."""
ANSWER_ROOM = 512

_PIECE = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d"
    rf"| ?[^\W_]{{1,{LONGEST_PIECE}}}"
    rf"| ?(?:[^\s\w]|_){{1,{LONGEST_PIECE}}}"
    rf"|\s{{1,{LONGEST_PIECE}}}(?!\S)|\s{{1,{LONGEST_PIECE}}}"
)


@cache
def _numeral() -> re.Pattern[str]:
    """Return a pattern of one character of any Unicode number category; `re` has no class for
    it. The planes above the second have ideographs, tags and private characters only."""
    every = map(chr, range(0x20000))
    numerals = "".join(char for char in every if unicodedata.category(char)[0] == "N")
    return re.compile(f"([{numerals}])")


@cache
def byte_characters() -> dict[int, str]:
    """Return the character that stands for each byte in the vocabulary: printable ones for
    themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in plain)
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


class SmolTextCodec:
    """Text codec of SmolLM2: byte-level BPE and ChatML.

    Args:
        name: Display name of the policy.
        tokens: Vocabulary, with bytes written as `byte_characters`.
        merges: `left right`, in order of priority.
        tags: Ids of control tokens.
        recipe: Hyperparameters that differ from the defaults.

    Raises:
        ValueError: the vocabulary lacks a token of the template, or a merge names an unknown token.
    """

    def __init__(
        self,
        name: str,
        tokens: Sequence[str],
        merges: Sequence[str],
        tags: Iterable[int],
        recipe: Mapping[str, Any],
    ) -> None:
        self.name, self.recipe = name, recipe
        ids = {token: i for i, token in enumerate(tokens)}
        stands = byte_characters()
        unknown = ids.get("?")
        if END not in ids or BEGIN not in ids or unknown is None:
            raise ValueError("the vocabulary is of another kind")
        self.end: int = ids[END]
        self._first = [ids.get(stands[byte], unknown) for byte in range(256)]
        """Id of each single byte; a few rare ones have none."""
        self._rank: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, merge in enumerate(merges):
            left, _, right = merge.partition(" ")
            if left not in ids or right not in ids or left + right not in ids:
                raise ValueError(f"the merge {merge!r} names no token")
            self._rank[ids[left], ids[right]] = rank, ids[left + right]
        self._names = {tag: tokens[tag] for tag in tags}
        back = {char: byte for byte, char in stands.items()}
        self._bytes = [
            b"" if i in self._names else bytes(back[char] for char in token if char in back)
            for i, token in enumerate(tokens)
        ]
        self.longest = max(map(len, self._bytes))
        """Most bytes, and so most characters, of one token."""
        self._cache: dict[str, tuple[int, ...]] = {}
        self._chat_tags = self._build_tags(ids[BEGIN])

    @property
    def tags(self) -> tuple[int, ...]:
        """Ids of control tokens."""
        return tuple(self._names)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, never a tag; lone surrogates become question marks."""
        ids: list[int] = []
        for part in _numeral().split(text):
            for piece in _PIECE.findall(part) if len(part) > 1 else (part,) if part else ():
                encoded = self._cache.get(piece)
                if encoded is None:
                    encoded = self._merge(piece.encode("utf-8", "replace"))
                    if len(self._cache) < 20_000:
                        self._cache[piece] = encoded
                ids.extend(encoded)
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`; tags are empty."""
        table = self._bytes
        return b"".join(table[i] for i in ids if i < len(table))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`; invalid UTF-8 is dropped."""
        return self.decode_bytes(ids).decode("utf-8", "ignore")

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        r"""Return the display text of each id: tags by name, incomplete characters as `\\xe2`."""
        return [
            self._names.get(token) or self._bytes[token].decode("utf-8", "backslashreplace")
            for token in ids
        ]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        """Convert chat messages to a prompt; see `chat_template.render`. Tools are not shown to
        the model."""
        return chat_template.render(self, context, messages, tools, max_tokens, self._chat_tags)

    def _merge(self, data: bytes) -> tuple[int, ...]:
        ids = [self._first[byte] for byte in data]
        none = (len(self._rank), -1)
        while len(ids) > 1:
            best = min(self._rank.get(pair, none) for pair in pairwise(ids))
            if best is none:
                break
            at = next(i for i, pair in enumerate(pairwise(ids)) if self._rank.get(pair) == best)
            ids[at : at + 2] = [best[1]]
        return tuple(ids)

    def _build_tags(self, begin: int) -> chat_template.ChatTags:
        """Return ChatML's tags. Tool results become user turns: the model has no role for them."""
        closing = (self.end, *self.encode("\n"))

        def turn(role: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
            return (begin, *self.encode(f"{role}\n")), closing

        return chat_template.ChatTags(
            system=turn("system"),
            user=turn("user"),
            tool=turn("user"),
            assistant=turn("assistant"),
            call=turn("assistant"),
            tools=None,
            default_system=DEFAULT_SYSTEM,
            answer_room=ANSWER_ROOM,
        )
