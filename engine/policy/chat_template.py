"""Chat messages to tokens: a policy's chat template, and the compact form of tool calls.

A prompt of the shipped policy is `<s>system <c>tools <u>question <a>`; an answer ends with `<e>`, a
call is `<a><c>`. Other policies have a `ChatTags` of their own. Tags come from here alone: text is
encoded as bytes and can never become one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from engine.interface import Prompt, ToolCall
from engine.tokenizer import ANSWER, CALL, END, SYSTEM, TOOL, USER

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
    """A conversation in the policy's own form."""

    system: str
    tools: tuple[str, ...]
    """One line a tool: `name(argument, argument)`."""
    turns: tuple[Turn, ...]


class Encoder(Protocol):
    """What a template asks a tokenizer for."""

    longest: int
    """Most bytes, so at least most characters, of one token."""

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, never a tag."""


ANSWER_ROOM = 128
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatTags:
    """The tags of a chat template; the defaults are the shipped policy's."""

    system: tuple[Ids, Ids] = ((SYSTEM,), ())
    """Before and after the system line."""
    user: tuple[Ids, Ids] = ((USER,), ())
    tool: tuple[Ids, Ids] = ((TOOL,), ())
    assistant: tuple[Ids, Ids] = ((ANSWER,), (END,))
    call: tuple[Ids, Ids] = ((ANSWER, CALL), (END,))
    tools: Ids | None = (CALL,)
    """Before the list of tools; None when the policy knows none."""
    default_system: str = ""
    """The system line of a conversation that has none."""
    answer_room: int = ANSWER_ROOM
    """At most this many ids are kept free for the answer, however many were asked for."""


SHIPPED = ChatTags()


def encode_turn(
    tokenizer: Encoder, turn: Turn, cut: int | None = None, form: ChatTags = SHIPPED
) -> tuple[list[int], bool]:
    """Ids of one turn with its tags, and whether text had to be dropped to fit `cut` ids."""
    opening, closing = getattr(form, turn.kind)
    if cut is None:
        text, dropped = tokenizer.encode(turn.text), False
    else:
        room = cut - len(opening) - len(closing)
        text, dropped = squeeze(tokenizer, turn.text, room, 0.5)
    return [*opening, *text, *closing], dropped


def encode_dialogue(
    tokenizer: Encoder, dialogue: Dialogue, form: ChatTags = SHIPPED
) -> tuple[list[int], list[bool]]:
    """Ids of a whole dialogue, and which of them an answer is made of."""
    before, after = form.system
    ids = [*before, *tokenizer.encode(dialogue.system), *after]
    if dialogue.tools and form.tools is not None:
        ids += [*form.tools, *tokenizer.encode("\n".join(dialogue.tools))]
    answer = [False] * len(ids)
    for turn in dialogue.turns:
        made, _ = encode_turn(tokenizer, turn, form=form)
        ids += made
        spoken = turn.learn and turn.kind in ("assistant", "call")
        answer += [False] + [spoken] * (len(made) - 1)
    return ids, answer


_SYSTEM_SHARE, _TOOL_SHARE = 0.3, 0.25
_LONG_JSON = 20_000
_CALL = re.compile(r"\s*([A-Za-z_][\w.-]{0,63})\((.*)\)\s*\Z", re.DOTALL)
_ARGUMENT = re.compile(r"(?:\A|,)\s*([A-Za-z_]\w{0,63})=")


def squeeze(tokenizer: Encoder, text: str, room: int, head: float) -> tuple[list[int], bool]:
    """Ids of `text` in at most `room`: its beginning and its end when it is longer.

    Args:
        tokenizer: Text to ids.
        text: Of any length; only as much as could fit is encoded.
        room: Most ids to return.
        head: Part of the room for the beginning, 1 for nothing of the end.

    Returns:
        The ids and whether something was dropped.
    """
    room = max(0, room)
    reach = (room + 1) * tokenizer.longest
    if len(text) <= reach:
        ids = tokenizer.encode(text)
        if len(ids) <= room:
            return ids, False
    front = int(room * head)
    kept = tokenizer.encode(text[:reach])[:front]
    if room > front:
        kept += tokenizer.encode(text[-reach:])[front - room :]
    return kept, True


def parse_call(text: str) -> ToolCall | None:
    """A call in the compact form `name(argument=value, ...)`; None when it is not one."""
    found = _CALL.match(text)
    if found is None:
        return None
    name, inside = found.groups()
    heads = list(_ARGUMENT.finditer(inside))
    if inside.strip() and (not heads or inside[: heads[0].start()].strip()):
        return None
    arguments = {}
    for i, head in enumerate(heads):
        end = heads[i + 1].start() if i + 1 < len(heads) else len(inside)
        arguments[head.group(1)] = inside[head.end() : end].strip()
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def content_text(content: Any) -> str:
    """Text of a message's content: a string, a list of blocks, or nothing."""
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
    """A tool's definition as `name(argument, argument)`."""
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
    """Messages and tools in the OpenAI form to the policy's own."""
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
    """Puts a dialogue into a window, dropping its middle."""

    def __init__(self, tokenizer: Encoder, room: int, form: ChatTags) -> None:
        self._tokenizer = tokenizer
        self._room = room
        self._form = form
        self._least = 3 + sum(map(len, form.user))
        """Ids of a turn that is worth its tags."""
        self.truncated = False

    def whole(self, dialogue: Dialogue) -> list[int] | None:
        """All of it, or None when it does not fit."""
        size = len(dialogue.system) + sum(map(len, dialogue.tools))
        for turn in dialogue.turns:
            size += len(turn.text)
            if size > self._room * self._tokenizer.longest:
                return None
        if len(dialogue.turns) > self._room:
            return None
        ids, _ = encode_dialogue(self._tokenizer, dialogue, self._form)
        return ids if len(ids) < self._room else None

    def cut(self, dialogue: Dialogue) -> list[int]:
        """Head of the system line, names of the tools, the last turns."""
        self.truncated = True
        before, after = self._form.system
        part, _ = squeeze(
            self._tokenizer, dialogue.system, int(self._room * _SYSTEM_SHARE) - 1, 1.0
        )
        ids = [*before, *part, *after]
        tag = self._form.tools
        if dialogue.tools and tag is not None:
            ids += [*tag, *self._tools(dialogue.tools, int(self._room * _TOOL_SHARE) - 1)]
        return ids + self._turns(dialogue.turns, self._room - len(ids) - 1)

    def _tools(self, lines: Sequence[str], room: int) -> list[int]:
        lines = lines[: room // 2]
        full = self._tokenizer.encode("\n".join(lines))
        if len(full) <= room:
            return full
        kept: list[int] = []
        for line in lines:
            name = self._tokenizer.encode(("\n" if kept else "") + line.split("(")[0] + "()")
            if len(kept) + len(name) > room:
                break
            kept += name
        return kept

    def _turns(self, turns: Sequence[Turn], room: int) -> list[int]:
        """The last turns in `room` ids; the present exchange is shortened, older ones are whole."""
        parts: list[list[int]] = []
        present = True
        for turn in reversed(turns):
            alone = turn.kind == "user" or not present
            allowed = room if alone else room // 2
            if allowed < self._least:
                break
            part, dropped = encode_turn(self._tokenizer, turn, allowed, self._form)
            if dropped and not present:
                break
            parts.append(part)
            room -= len(part)
            present = present and turn.kind != "user"
        return [token for part in reversed(parts) for token in part]


def render(
    tokenizer: Encoder,
    context: int,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    max_tokens: int,
    form: ChatTags = SHIPPED,
) -> Prompt:
    """Chat messages to a prompt that leaves room for the answer.

    Args:
        tokenizer: Text to ids.
        context: Window in tokens.
        messages: OpenAI messages; any role, content a string, blocks or null.
        tools: OpenAI tools.
        max_tokens: Length of the answer asked for; at most the form's room is kept free.
        form: The tags.

    Returns:
        The prompt; `truncated` when a part of the conversation was left out.
    """
    begin, _ = form.assistant
    room = context - min(max(1, max_tokens), form.answer_room, context // 2) - len(begin) + 1
    dialogue = to_dialogue(messages, tools)
    if not dialogue.system:
        dialogue = replace(dialogue, system=form.default_system)
    if not dialogue.turns:
        dialogue = Dialogue(dialogue.system, dialogue.tools, (Turn("user", ""),))
    fit = _WindowFitter(tokenizer, room, form)
    ids = fit.whole(dialogue)
    if ids is None:
        ids = fit.cut(dialogue)
    return Prompt((*ids, *begin), fit.truncated)
