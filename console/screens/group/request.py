"""The request of a group as entries: system prompt, tools, turns, calls and results."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ajet_swarm.common.text import content_text, one_line, plural
from console.text.lines import Line, fit, line_text
from console.text.tool_calls import pretty
from console.text.wrap import wrapped
from core.events import Event, GroupOpened

SHORT = 6
"""Most rows of a system prompt, a tool result or a thought that starts unfolded."""
MANY = 40
"""With more entries, only the last user message and those after it start unfolded."""
_TONES = {
    "system": "$engine-syncing",
    "tools": "$engine-syncing",
    "user": "$accent",
    "assistant": "$heading",
    "reasoning": "$muted",
    "call": "$returned",
    "result": "$returned",
}
_ASIDE = frozenset({"system", "tools", "reasoning", "result"})
"""Kinds that start folded when they are long."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One part of a conversation; its text comes from users and models and is not sanitized."""

    kind: str
    """system, tools, user, assistant, reasoning, call or result."""
    title: str
    text: str

    def has(self, needle: str) -> bool:
        """Return whether it contains a text in lower case."""
        return needle in f"{self.title}\n{self.text}".lower()


def conversation(events: Iterable[Event]) -> list[Entry]:
    """Return the request of a group, from its events; empty when it is no longer stored."""
    opened = next((event for event in events if isinstance(event, GroupOpened)), None)
    return entries(opened.body) if opened is not None else []


def entries(body: dict[str, Any]) -> list[Entry]:
    """Return the entries of a chat completion request, tools first; skip what is not a message."""
    messages = _dicts(body.get("messages"))
    calls = [call for message in messages for call in _dicts(message.get("tool_calls"))]
    named = {str(call.get("id")): _name(_function(call)) for call in calls}
    return [*_tools(body), *(part for message in messages for part in _message(message, named))]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _tools(body: dict[str, Any]) -> Iterator[Entry]:
    tools = _dicts(body.get("tools"))
    if not tools:
        return
    parts = []
    for tool in tools:
        function = _function(tool)
        about = str(function.get("description") or "")
        parameters = function.get("parameters")
        shape = pretty(parameters) if parameters else ""
        parts.append("\n".join(filter(None, (f"⚙ {_name(function)}", about, shape))))
    yield Entry("tools", plural(len(tools), "tool"), "\n\n".join(parts))


def _name(function: dict[str, Any]) -> str:
    return str(function.get("name") or function.get("type") or "(no name)")


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    return function if isinstance(function, dict) else call


def _message(message: dict[str, Any], named: dict[str, str]) -> Iterator[Entry]:
    role, text = str(message.get("role") or ""), content_text(message.get("content"))
    if role in ("tool", "function"):
        name = named.get(str(message.get("tool_call_id"))) or str(message.get("name") or "a tool")
        yield Entry("result", f"result of {name}", text)
        return
    if thought := content_text(message.get("reasoning") or message.get("reasoning_content")):
        yield Entry("reasoning", "assistant, reasoning", thought)
    calls = _dicts(message.get("tool_calls"))
    if text or not calls:
        kind = "system" if role in ("system", "developer") else role
        yield Entry(kind if kind in _TONES else "user", role or "(no role)", text)
    for call in calls:
        function = _function(call)
        yield Entry("call", f"assistant calls {_name(function)}", pretty(function.get("arguments")))


def context_words(parts: Sequence[Entry], turns: int) -> str:
    """Return the context of a question: `turn 3, system prompt of 34 words, 5 tools`.

    Args:
        parts: The entries of the request.
        turns: Number of the requested answer in the conversation, from 1; 0 when unknown.
    """
    words = [f"turn {turns}"] if turns else []
    prompts = [part for part in parts if part.kind == "system"]
    if prompts:
        count = sum(len(prompt.text.split()) for prompt in prompts)
        words.append(f"system prompt of {plural(count, 'word')}")
    elif parts:
        words.append("no system prompt")
    words += [part.title for part in parts if part.kind == "tools"]
    if calls := sum(part.kind == "call" for part in parts):
        words.append(plural(calls, "tool call"))
    return ", ".join(words)


def folded_first(parts: Sequence[Entry]) -> set[int]:
    """Return the indices of the entries that start folded."""
    if len(parts) > MANY:
        users = [place for place, part in enumerate(parts) if part.kind == "user"]
        return set(range(users[-1] if users else len(parts) - 1))
    return {
        place
        for place, part in enumerate(parts)
        if part.kind in _ASIDE and (part.text.count("\n") >= SHORT or len(part.text) > SHORT * 80)
    }


def entry_lines(entry: Entry, folded: bool, width: int, needle: str = "") -> tuple[Line, ...]:
    """Return the head of an entry, and unless it is folded its indented text.

    Args:
        entry: The entry.
        folded: Whether only the head is shown.
        width: Cells.
        needle: Text to mark, in lower case; empty for none.
    """
    rows = [] if folded else wrapped(entry.text, width - 4)
    return _head(entry, folded, width), *(_marked(f"   {text}", needle) for text in rows)


def matches(
    parts: Sequence[Entry], spans: Iterable[range], lines: Sequence[Line], needle: str
) -> list[int]:
    """Return the rows that contain a text; the head of an entry if the wrap broke the match.

    Args:
        parts: The entries.
        spans: The rows of each entry.
        lines: The line of each row.
        needle: The text, in lower case; not empty.
    """
    found: list[int] = []
    for part, span in zip(parts, spans, strict=True):
        if part.has(needle):
            hits = [row for row in span[1:] if needle in line_text(lines[row]).lower()]
            found += hits or [span.start]
    return found


def _head(entry: Entry, folded: bool, width: int) -> Line:
    sign = "▸" if folded else "▾"
    tone = f"bold {_TONES[entry.kind]}"
    title = f" {sign} {one_line(entry.title, 60)}  "
    count = entry.text.count("\n") + 1 if entry.text else 0
    about = f"{plural(len(entry.text.split()), 'word')}, {plural(count, 'line')}"
    if folded:
        about += f"  {one_line(entry.text, 200)}"
    elif not entry.text:
        about = "(no text)"
    room = max(0, width - len(title))
    return ((title, tone), (fit(about, room), "$muted"))


def _marked(text: str, needle: str) -> Line:
    """Return `text` with the matches of the search reversed."""
    start = text.lower().find(needle) if needle else -1
    if start < 0 or len(text.lower()) != len(text):
        return ((text, ""),)
    end = start + len(needle)
    return ((text[:start], ""), (text[start:end], "reverse"), *_marked(text[end:], needle))
