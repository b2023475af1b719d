"""Word-by-word differences between two answers."""

import re
from collections.abc import Sequence
from functools import lru_cache

from console.text.lines import Line
from console.text.wrap import TAB, Piece, safe, wrapped, wrapped_pieces

WORDS = 4_000
"""Maximum number of words compared in each text."""
_TOKEN = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
_LESS = 8
"""Missing words are shown up to this number; a longer run is only counted."""
OWN = "bold underline $reward-up"
GONE = "strike $reward-down"
SHARED = "$muted"


@lru_cache(maxsize=64)
def word_diff(base: str, text: str, width: int) -> tuple[Line, ...]:
    """Return `text` with shared words dimmed, its own underlined, and missing ones struck through.

    The time is bounded: only the first `WORDS` words are compared, and a note says so.
    """
    before, after = _words(base), _words(text)
    more = max(len(before), len(after)) - WORDS
    before, after = before[:WORDS], after[:WORDS]
    if before == after and more <= 0:
        return tuple(((line, SHARED),) for line in wrapped("the same text", width))
    lines: list[Line] = list(wrapped_pieces(_pieces(before, after), width))
    if more > 0:
        note = f"… only the first {WORDS} words are compared"
        lines += [((line, SHARED),) for line in wrapped(note, width)]
    return tuple(lines)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(safe(text[: WORDS * 40]).replace("\t", TAB).rstrip())


def _pieces(before: Sequence[str], after: Sequence[str]) -> list[Piece]:
    pieces: list[Piece] = []
    i = j = 0
    common = matches([line.rstrip() for line in before], [line.rstrip() for line in after])
    for k, m in [*common, (len(before), len(after))]:
        gone = _gone(before[i:k])
        if gone and pieces and not pieces[-1][0].endswith((" ", "\n")):
            pieces.append((" ", SHARED))
        pieces += [*gone, *_own(after[j:m])]
        if m < len(after):
            pieces.append((after[m], SHARED))
        i, j = k + 1, m + 1
    return pieces


def _own(words: Sequence[str]) -> list[Piece]:
    text = "".join(words)
    stripped = text.rstrip()
    return [piece for piece in ((stripped, OWN), (text[len(stripped) :], SHARED)) if piece[0]]


def _gone(words: Sequence[str]) -> list[Piece]:
    text = " ".join("".join(words).split())
    if not text:
        return []
    count = len(text.split())
    return [(text if count <= _LESS else f"[{count} words fewer]", GONE), (" ", SHARED)]


def matches(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Return the index pairs of a longest common subsequence, in order.

    Bit-parallel: one addition of long integers per word of `after`.

    Source: H. Hyyrö, Bit-parallel LCS-length computation revisited (2004).
    """
    masks: dict[str, int] = {}
    for place, word in enumerate(before):
        masks[word] = masks.get(word, 0) | 1 << place
    whole = (1 << len(before)) - 1
    row, rows = whole, []
    for word in after:
        shared = row & masks.get(word, 0)
        row = ((row + shared) | (row - shared)) & whole
        rows.append(row)
    pairs: list[tuple[int, int]] = []
    i, j = len(before) - 1, len(after) - 1
    while i >= 0 and j >= 0:
        if rows[j] >> i & 1:  # this word of `before` does not lengthen the subsequence
            i -= 1
        elif j and not rows[j - 1] >> i & 1:  # nor does this word of `after`
            j -= 1
        else:
            pairs.append((i, j))
            i, j = i - 1, j - 1
    pairs.reverse()
    return pairs
