"""What agents write into their user's messages: notes to the model, no words of the user's.

An aside is taken out of what a request is known by (its query), never out of what is asked. So is
what OpenClaw writes around a message: the time before it, what it runs on after it.
"""

import re

ASIDES = (
    ("<system-reminder>", "</system-reminder>"),  # Claude Code, qwen-code, AgentScope
    ("<environment_context>", "</environment_context>"),  # Codex
    ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"),
)

MOST_ASIDES = 1000
"""How many of a kind are taken out of one text."""

_STAMP = re.compile(
    r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [\w:/+-]{1,40}\] "
)
_RUNTIME = "Runtime: agent="


def own_words(text: str) -> str:
    """What of `text` is the user's: all of it, or empty when there is nothing else."""
    found = without_asides(text)
    stamp = _STAMP.match(found)
    kept = _without_runtime(found[stamp.end() :] if stamp else found)
    return found if kept is found else kept.strip()


def without_asides(text: str) -> str:
    """`text` without asides; as it is when it has none, empty when there is nothing else.

    What OpenClaw writes around stays: it is the same when a message is sent again, and tells
    conversations apart that begin with the same words.
    """
    found = text
    for begin, end in ASIDES:
        if begin in found:
            found = _without(found, begin, end)
    return text if found is text else found.strip()


def query_of(text: str, before: str | None) -> str | None:
    """What a user asks, going by one more of its messages.

    Args:
        text: Of the message.
        before: What it asked by the messages before; None without any.

    Returns:
        The message's own words; `before` when it has none.
    """
    words = own_words(text)
    return words if words or not text else before


def _without(text: str, begin: str, end: str) -> str:
    """An aside that does not end stays: it may be the user's after all."""
    kept: list[str] = []
    at = 0
    while (
        len(kept) < MOST_ASIDES
        and (start := text.find(begin, at)) >= 0
        and (stop := text.find(end, start)) >= 0
    ):
        kept.append(text[at:start])
        at = stop + len(end)
    return text if not at else "".join((*kept, text[at:]))


def _without_runtime(text: str) -> str:
    """Without a last line that tells what OpenClaw runs on."""
    line = text.rstrip()
    begin = line.rfind("\n") + 1
    return line[:begin].rstrip() if line.startswith(_RUNTIME, begin) else text
