"""Answers split into text, words and tool calls, once for all parts that use their text."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from proxy.rewards.source import Answer

READ_LIMIT = 8_000
"""Maximum number of characters whose words are read: half at the start, half at the end. It bounds
the work on very long answers; repetition shows at either end."""

_CJK = "぀-ヿ㐀-䶿一-鿿가-힯"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+(?:['’][^\W_]+)?")

_SEPARATED = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128)) * 2
"""Translation of bytes: ASCII letters to lower case, everything outside a word to a space."""

_STOPWORDS = """
a about all also am an and any are as at be been but by can could did do does for from give had
has have he her him his how i if in into is it its just let like make me more my no not of on
one or our out please say she should so some tell than that the their them then there these they
this to up us was we were what when where which who why will with would you your
"""
STOPWORDS = frozenset(_STOPWORDS.split())


class Reading(msgspec.Struct, frozen=True, gc=False):
    """An answer, split into the data that parts use."""

    text: str
    """Content as one string; empty for a message of tool calls alone."""
    ends: str
    """The beginning and the end of the text or, if it is empty, of the tool calls."""
    words: list[str]
    """In lower case; each character of a script without spaces is a word."""
    line: str
    """The words, separated and preceded by white space."""
    count: int
    """Number of words in the whole text, beyond the read limit too."""
    grams: frozenset[int]
    """Hashes of the word trigrams; of shorter runs when there are fewer than three words."""
    finish_reason: str
    tool_calls: list[Any]


def read(answer: Answer) -> Reading:
    """Split one answer into text, words and tool calls."""
    message = answer.message
    text, calls = content_text(message.get("content")), message.get("tool_calls")
    tool_calls = calls if isinstance(calls, list) else []
    visible = text or " ".join(call_text(call) for call in tool_calls)
    ends = ends_of(visible) if len(visible) > READ_LIMIT else visible
    line = line_of(ends)
    words = line.split()
    count = len(words) if ends is visible else len(visible.split())
    grams = frozenset(grams_of(words, min(3, len(words))))
    return Reading(text, ends, words, line, count, grams, answer.finish_reason, tool_calls)


def call_text(call: Any) -> str:
    """Return name and arguments of a tool call as text to compare."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return ""
    return f"{function.get('name')} {function.get('arguments')}"


def ends_of(text: str) -> str:
    """Return `text`, or its two ends joined when it is longer than `READ_LIMIT` characters."""
    half = READ_LIMIT // 2
    return text if len(text) <= READ_LIMIT else f"{text[:half]} {text[-half:]}"


def line_of(text: str) -> str:
    """Return the lower-case words of `text`, separated and preceded by white space."""
    if text.isascii() and "'" not in text:  # the words that `_WORD` matches, at a tenth of the cost
        return " " + text.encode("ascii").translate(_SEPARATED).decode("ascii")
    return " " + " ".join(_WORD.findall(text.lower()))


def words_of(text: str) -> list[str]:
    """Return the lower-case words of `text`."""
    return line_of(text).split()


def grams_of(words: list[str], size: int) -> Iterable[int]:
    """Return the hashes of all runs of `size` words, in order; they compare faster than words."""
    if size < 1:
        return ()
    if size == 3:
        return map(hash, zip(words, words[1:], words[2:], strict=False))
    return map(hash, zip(*[words[start:] for start in range(size)], strict=False))


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return a word without its most common English endings; at least three letters remain."""
    for ending in ("'s", "ing", "ed", "es", "ly", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls"
    return word[:-1] if doubled else word


def content_stems(query: str) -> tuple[str, ...]:
    """Return the stems of the meaningful words of a query, each once, in order."""
    words = [word for word in words_of(query) if word not in STOPWORDS]
    return tuple(dict.fromkeys(map(stem, words)))
