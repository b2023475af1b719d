"""Notes to the model that agents insert into their user's messages, and how to strip them.

Notes are removed only from the text that identifies a request (its query), never from the messages
that go upstream. The same holds for the text that OpenClaw adds to a message: a timestamp in front
of it, a line about its runtime behind it.
"""

import re

ASIDES = (
    ("<system-reminder>", "</system-reminder>"),  # Claude Code, qwen-code, AgentScope
    ("<environment_context>", "</environment_context>"),  # Codex
    ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"),
)

MOST_ASIDES = 1000
"""Notes of one kind that are removed from one text, at most."""

_STAMP = re.compile(
    r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [\w:/+-]{1,40}\] "
)
_RUNTIME = "Runtime: agent="


def own_words(text: str) -> str:
    """Return `text` without notes, timestamp and runtime line; empty if nothing else remains."""
    text_only = without_asides(text)
    stamp = _STAMP.match(text_only)
    trimmed = _without_runtime(text_only[stamp.end() :] if stamp else text_only)
    return text_only if trimmed is text_only else trimmed.strip()


def without_asides(text: str) -> str:
    """Return `text` without tagged notes; unchanged without any, empty if nothing else remains.

    OpenClaw's timestamp and runtime line stay: they are equal when a message is sent again, and
    they distinguish conversations that begin with the same words.
    """
    result = text
    for begin, end in ASIDES:
        if begin in result:
            result = _without(result, begin, end)
    return text if result is text else result.strip()


def query_of(text: str, before: str | None) -> str | None:
    """Return the user's query after one more message.

    Args:
        text: Text of the message.
        before: The query after the previous messages; None without any.

    Returns:
        The message without notes; `before` if it consists of notes only.
    """
    words = own_words(text)
    return words if words or not text else before


def _without(text: str, begin: str, end: str) -> str:
    """Cut out all notes between the two tags; keep an unclosed one: it may be the user's text."""
    pieces: list[str] = []
    position = 0
    while (
        len(pieces) < MOST_ASIDES
        and (start := text.find(begin, position)) >= 0
        and (stop := text.find(end, start)) >= 0
    ):
        pieces.append(text[position:start])
        position = stop + len(end)
    return text if not position else "".join((*pieces, text[position:]))


def _without_runtime(text: str) -> str:
    """Cut off a last line in which OpenClaw describes its runtime."""
    line = text.rstrip()
    begin = line.rfind("\n") + 1
    return line[:begin].rstrip() if line.startswith(_RUNTIME, begin) else text
