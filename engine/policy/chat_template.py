"""Chat template of a policy: messages to tokens, and the compact form of tool calls.

A prompt of the shipped policy is `<s>system <c>tools <u>question <a>`; an answer ends with `<e>`, a
tool call is `<a><c>`. Tags come from this module only: text is encoded as bytes and can never
become one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.interface import Prompt, ToolCall
from engine.tokenizer import ANSWER, CALL, END, SYSTEM, TOOL, USER, Tokenizer

Kind = Literal["user", "assistant", "call", "tool"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a dialogue."""

    kind: Kind
    text: str
    learn: bool = True
    """False for an answer that pretraining does not imitate."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation in the policy's form."""

    system: str
    tools: tuple[str, ...]
    """One line per tool: `name(argument, argument)`."""
    turns: tuple[Turn, ...]


ANSWER_ROOM = 128
"""Maximum number of ids reserved for the answer, whatever the request."""
_AROUND: Mapping[Kind, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "user": ((USER,), ()),
    "tool": ((TOOL,), ()),
    "assistant": ((ANSWER,), (END,)),
    "call": ((ANSWER, CALL), (END,)),
}
"""Ids before and after the text of each kind of turn."""
_MIN_TURN = 4
"""Fewest ids of a turn that justify its tag."""


def encode_turn(tokenizer: Tokenizer, turn: Turn, cut: int | None = None) -> tuple[list[int], bool]:
    """Return the ids of one turn with its tags, and whether text was dropped to fit `cut` ids."""
    opening, closing = _AROUND[turn.kind]
    if cut is None:
        text, dropped = tokenizer.encode(turn.text), False
    else:
        room = cut - len(opening) - len(closing)
        text, dropped = squeeze(tokenizer, turn.text, room, 0.5)
    return [*opening, *text, *closing], dropped


def encode_dialogue(tokenizer: Tokenizer, dialogue: Dialogue) -> tuple[list[int], list[bool]]:
    """Return the ids of a whole dialogue, and a flag for each: part of an answer to learn."""
    ids = [SYSTEM, *tokenizer.encode(dialogue.system)]
    if dialogue.tools:
        ids += [CALL, *tokenizer.encode("\n".join(dialogue.tools))]
    answer = [False] * len(ids)
    for turn in dialogue.turns:
        turn_ids, _ = encode_turn(tokenizer, turn)
        ids += turn_ids
        is_answer = turn.learn and turn.kind in ("assistant", "call")
        answer += [False] + [is_answer] * (len(turn_ids) - 1)
    return ids, answer


_SYSTEM_SHARE, _TOOL_SHARE = 0.3, 0.25
_LONG_JSON = 20_000
_CALL = re.compile(r"\s*([A-Za-z_][\w.-]{0,63})\((.*)\)\s*\Z", re.DOTALL)
_ARGUMENT = re.compile(r"(?:\A|,)\s*([A-Za-z_]\w{0,63})=")


def squeeze(tokenizer: Tokenizer, text: str, room: int, head: float) -> tuple[list[int], bool]:
    """Encode `text` in at most `room` ids; a longer text keeps its start and its end.

    Args:
        tokenizer: Text to ids.
        text: Any length; only as much as could fit is encoded.
        room: Maximum number of ids.
        head: Share of the room for the start; 1 keeps nothing of the end.

    Returns:
        The ids, and whether text was dropped.
    """
    room = max(0, room)
    reach = (room + 1) * tokenizer.longest
    if len(text) <= reach:
        whole = tokenizer.encode(text)
        if len(whole) <= room:
            return whole, False
    front = int(room * head)
    ids = tokenizer.encode(text[:reach])[:front]
    if room > front:
        ids += tokenizer.encode(text[-reach:])[front - room :]
    return ids, True


def parse_call(text: str) -> ToolCall | None:
    """Parse a call of the compact form `name(argument=value, ...)`; None when the text is not
    one."""
    match = _CALL.match(text)
    if match is None:
        return None
    name, inside = match.groups()
    heads = list(_ARGUMENT.finditer(inside))
    if inside.strip() and (not heads or inside[: heads[0].start()].strip()):
        return None
    arguments = {}
    for i, head in enumerate(heads):
        end = heads[i + 1].start() if i + 1 < len(heads) else len(inside)
        arguments[head.group(1)] = inside[head.end() : end].strip()
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def content_text(content: Any) -> str:
    """Return the text of a message's content: a string, a list of blocks, or nothing."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        text = content.get("text")
        return text if isinstance(text, str) else f"[{content.get('type', 'part')}]"
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return "\n".join(content_text(part) for part in content)
    return str(content)


def _call_text(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "tool()"
    raw = function.get("arguments")
    parsed: Any = raw
    if isinstance(raw, str) and len(raw) <= _LONG_JSON:
        try:
            parsed = json.loads(raw)
        except (ValueError, RecursionError):
            parsed = raw
    if isinstance(parsed, Mapping):
        values = (
            f"{key}={v if isinstance(v, str) else json.dumps(v)}" for key, v in parsed.items()
        )
        inside = ", ".join(values)
    else:
        inside = "" if parsed is None else str(parsed)
    return f"{_word(function.get('name'))}({inside})"


def _word(name: Any) -> str:
    return re.sub(r"\s+", "_", str(name)[:64]) if name else "tool"


def tool_line(tool: Mapping[str, Any]) -> str:
    """Return a tool's definition as `name(argument, argument)`."""
    function = tool.get("function")
    source = function if isinstance(function, Mapping) else tool
    schema = source.get("parameters") or source.get("input_schema")
    names: list[str] = []
    if isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping):
        names = [_word(name) for name in list(schema["properties"])[:8]]
    return f"{_word(source.get('name'))}({', '.join(names)})"


def to_dialogue(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> Dialogue:
    """Convert messages and tools of the OpenAI form to a dialogue."""
    system: list[str] = []
    turns: list[Turn] = []
    for message in messages:
        role = message.get("role")
        text = content_text(message.get("content"))
        if role in ("system", "developer"):
            system.append(text)
        elif role == "assistant":
            if text:
                turns.append(Turn("assistant", text))
            calls = message.get("tool_calls")
            if isinstance(calls, Sequence) and not isinstance(calls, str):
                turns += [Turn("call", _call_text(call)) for call in calls]
        elif role in ("tool", "function"):
            turns.append(Turn("tool", text))
        else:
            turns.append(Turn("user", text))
    lines = tuple(tool_line(tool) for tool in tools or ())
    return Dialogue("\n".join(part for part in system if part), lines, tuple(turns))


class _WindowFitter:
    """Encoder of a dialogue into a window; drops its middle when it is too long."""

    def __init__(self, tokenizer: Tokenizer, room: int) -> None:
        self._tokenizer = tokenizer
        self._room = room
        self.truncated = False

    def whole(self, dialogue: Dialogue) -> list[int] | None:
        """Return the ids of the whole dialogue, or None when it does not fit."""
        size = len(dialogue.system) + sum(map(len, dialogue.tools))
        for turn in dialogue.turns:
            size += len(turn.text)
            if size > self._room * self._tokenizer.longest:
                return None
        if len(dialogue.turns) > self._room:
            return None
        ids, _ = encode_dialogue(self._tokenizer, dialogue)
        return ids if len(ids) < self._room else None

    def cut(self, dialogue: Dialogue) -> list[int]:
        """Return the start of the system line, the names of the tools and the last turns."""
        self.truncated = True
        part, _ = squeeze(
            self._tokenizer, dialogue.system, int(self._room * _SYSTEM_SHARE) - 1, 1.0
        )
        ids = [SYSTEM, *part]
        if dialogue.tools:
            ids += [CALL, *self._tools(dialogue.tools, int(self._room * _TOOL_SHARE) - 1)]
        return ids + self._turns(dialogue.turns, self._room - len(ids) - 1)

    def _tools(self, lines: Sequence[str], room: int) -> list[int]:
        lines = lines[: room // 2]
        full = self._tokenizer.encode("\n".join(lines))
        if len(full) <= room:
            return full
        ids: list[int] = []
        for line in lines:
            name = self._tokenizer.encode(("\n" if ids else "") + line.split("(")[0] + "()")
            if len(ids) + len(name) > room:
                break
            ids += name
        return ids

    def _turns(self, turns: Sequence[Turn], room: int) -> list[int]:
        """Return the last turns in `room` ids; only turns of the current exchange are shortened."""
        parts: list[list[int]] = []
        current = True
        for turn in reversed(turns):
            whole_room = turn.kind == "user" or not current
            allowed = room if whole_room else room // 2
            if allowed < _MIN_TURN:
                break
            part, dropped = encode_turn(self._tokenizer, turn, allowed)
            if dropped and not current:
                break
            parts.append(part)
            room -= len(part)
            current = current and turn.kind != "user"
        return [token for part in reversed(parts) for token in part]


def render(
    tokenizer: Tokenizer,
    context: int,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    max_tokens: int,
) -> Prompt:
    """Convert chat messages to a prompt that leaves room for the answer.

    Args:
        tokenizer: Text to ids.
        context: Window in tokens.
        messages: OpenAI messages of any role; content is a string, blocks or null.
        tools: OpenAI tools.
        max_tokens: Requested answer length; at most `ANSWER_ROOM` ids are reserved.

    Returns:
        The prompt; `truncated` when a part of the conversation was dropped.
    """
    room = context - min(max(1, max_tokens), ANSWER_ROOM, context // 2)
    dialogue = to_dialogue(messages, tools)
    if not dialogue.turns:
        dialogue = Dialogue(dialogue.system, dialogue.tools, (Turn("user", ""),))
    fitter = _WindowFitter(tokenizer, room)
    ids = fitter.whole(dialogue)
    if ids is None:
        ids = fitter.cut(dialogue)
    return Prompt((*ids, ANSWER), fitter.truncated)
