"""Extraction of answers from a program's output or an application's response."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from ajet_swarm.common.text import one_line
from mock.targets.fields import Fault, Record, TargetFields, read_by, read_record

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
_STEP = re.compile(r'"([^"]*)"|([^.\[\]"]+)|\[(-?\d+|\*)\]')
_JSON_WORDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


class NoAnswer(ValueError):
    """The output contains no answer; the text gives the reason."""


def read_output(data: bytes) -> str:
    """Return a program's output as a terminal would show it.

    Raises:
        NoAnswer: it is not text.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NoAnswer(
            f"its output is not text: byte 0x{data[error.start]:02x} at {error.start + 1}"
        ) from None
    if "\x00" in text:
        raise NoAnswer(f"its output is not text: a NUL at {text.index(chr(0)) + 1}")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))


def parse_json(text: str | bytes, what: str = "its output") -> Any:
    """Parse JSON.

    Raises:
        NoAnswer: it is not JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        shown = one_line(text if isinstance(text, str) else text.decode(errors="replace"), 80)
        raise NoAnswer(f"{what} is not JSON: {shown or 'nothing'}") from None


# --- paths --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A place in a JSON value; several with `*`."""

    text: str = ""
    """As written in the file."""
    steps: tuple[str | int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """Parse `choices[0].message.content` or `choices.0.message.content`.

        Raises:
            ValueError: it is not a path.
        """
        steps: list[str | int] = []
        at = 0
        while at < len(text):
            if text[at] == "." and steps:
                at += 1
            match = _STEP.match(text, at)
            if match is None:
                shown = one_line(text, 60)
                raise ValueError(f"cannot be `{shown}`: a path is like choices[0].text")
            quoted, name, index = match.groups()
            if index is not None:
                steps.append("*" if index == "*" else int(index))
            elif name is not None and re.fullmatch(r"-?\d+", name):
                steps.append(int(name))
            else:
                steps.append(quoted if quoted is not None else name)
            at = match.end()
        return cls(text, tuple(steps))

    def __bool__(self) -> bool:
        return bool(self.steps)

    def values(self, value: Any) -> list[Any]:
        """Return the values at this path; none when nothing is there."""
        return _reached(value, self.steps)

    def texts(self, event: Any) -> list[str]:
        """Return the values at this path that are text."""
        return [text for text in self.values(event) if isinstance(text, str)]

    def text_in(self, value: Any) -> str:
        """Return the text at this path; several texts are joined as lines.

        Raises:
            NoAnswer: there is none; describes what is there.
        """
        found = [item for item in self.values(value) if item is not None]
        if not found:
            raise NoAnswer(f"nothing at `{self.text}`{self._describe_reached(value)}")
        return "\n".join(
            item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in found
        )

    def _describe_reached(self, value: Any) -> str:
        """Return how far the path can be followed, and what is there."""
        deep, last = 0, value
        for deep in range(len(self.steps), -1, -1):
            found = [item for item in _reached(value, self.steps[:deep]) if item is not None]
            if found:
                last = found[0]
                break
        pieces = [
            f"[{step}]" if isinstance(step, int) or step == "*" else f".{step}"
            for step in self.steps[:deep]
        ]
        which = f"`{one_line(''.join(pieces).removeprefix('.'), 80)}`" if deep else "it"
        if isinstance(last, Mapping) and last:
            there = one_line(", ".join(map(str, last)), 120)
            return f"; fields of {which}: {there}" if deep else f"; its fields: {there}"
        if isinstance(last, list):
            return f": {which} is a list of {len(last)}"
        return f": {which} is {'empty' if last == {} else _JSON_WORDS.get(type(last), 'null')}"


def _reached(value: Any, steps: tuple[str | int, ...]) -> list[Any]:
    values = [value]
    for step in steps:
        values = [inner for value in values for inner in _inner(value, step)]
    return values


def _inner(value: Any, step: str | int) -> list[Any]:
    if isinstance(value, Mapping):
        if step == "*":
            return list(value.values())
        return [value[str(step)]] if str(step) in value else []
    if isinstance(value, list):
        if step == "*":
            return value
        if isinstance(step, int) and -len(value) <= step < len(value):
            return [value[step]]
    return []


# --- rules of target files ----------------------------------------------------------------------


def _path(fields: TargetFields, name: str) -> JsonPath:
    return fields.checked(name, JsonPath.parse, fields.text(name))


def _where(fields: TargetFields, name: str) -> tuple[tuple[JsonPath, Any], ...]:
    conditions = fields.get(name, dict).items()
    return tuple((fields.checked(name, JsonPath.parse, str(path)), v) for path, v in conditions)


def _pattern(fields: TargetFields, name: str) -> re.Pattern[str]:
    try:
        return re.compile(fields.text(name), re.MULTILINE | re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise fields.fault(name, f"is not a regular expression: {error}") from None


def _rule(fields: TargetFields, name: str) -> "AnswerRule":
    if fields.is_scalar(name):
        return AnswerRule(how=fields.get(name, Literal["whole", "last_line"]))
    inner = fields.inner(name)
    assert inner is not None
    return read_record(inner, AnswerRule, how="")


AnswerPath = Annotated[JsonPath, read_by(_path)]
Take = Literal["join", "last"]
"""Which of several texts are the answer."""


class AnswerRule(Record, frozen=True, kw_only=True):
    """How the answer is found in a program's output: `answer` of a target file."""

    how: Literal["", "whole", "last_line"] = "whole"
    """Empty when the other fields say it."""
    regex: Annotated[re.Pattern[str], read_by(_pattern)] | None = None
    """The last match, its first group if it has one."""
    json: AnswerPath = JsonPath()
    lines: AnswerPath = JsonPath()
    """Path in each line that is a JSON event."""
    where: Annotated[tuple[tuple[JsonPath, Any], ...], read_by(_where)] = ()
    """Conditions on an event: path and required value."""
    take: Take = "join"
    file: str = ""
    """Template of a file that the program writes; empty for standard output."""

    def check(self) -> Iterator[Fault]:
        rules = sum(map(bool, (self.regex, self.json, self.lines)))
        if rules > 1:
            yield "", "has more than one of regex, json and lines", ""
        if not (rules or self.file or self.how):
            yield "", "has no rule", "Give regex, json, lines or file"

    def find(self, text: str) -> str:
        """Return the answer in `text`.

        Raises:
            NoAnswer: there is none; gives the reason.
        """
        answer = self._apply(text).strip()
        if not answer:
            if text.strip():
                raise NoAnswer(f"the answer is empty: {one_line(text, 120)}")
            where = "its answer file is empty" if self.file else "it printed nothing"
            raise NoAnswer(where)
        return answer

    def _apply(self, text: str) -> str:
        if self.how == "last_line":
            return next((line for line in reversed(text.split("\n")) if line.strip()), "")
        if self.regex is not None:
            return _last_match(self.regex, text)
        if self.json:
            return self.json.text_in(parse_json(text)) if text.strip() else ""
        return self._events(text) if self.lines else text

    def _events(self, text: str) -> str:
        pieces: list[str] = []
        for line in text.split("\n"):
            if not line.lstrip().startswith("{"):
                continue
            try:
                event = msgspec.json.decode(line)
            except msgspec.MsgspecError:
                continue
            if all(path.values(event) == [value] for path, value in self.where):
                pieces += self.lines.texts(event)
        if not pieces:
            raise NoAnswer(f"no event has text at `{self.lines.text}`: {one_line(text, 120)}")
        return pieces[-1] if self.take == "last" else "".join(pieces)


RuleOrWord = Annotated[AnswerRule, read_by(_rule)]
"""`answer` as a word, or as a mapping."""


def _last_match(pattern: re.Pattern[str], text: str) -> str:
    match = None
    for match in pattern.finditer(text):  # noqa: B007 - the last one counts
        pass
    if match is None:
        raise NoAnswer(f"`{pattern.pattern}` is not in its output: {one_line(text, 120)}")
    return (match[1] or "") if pattern.groups else match[0]


class Events(Record, frozen=True, kw_only=True):
    """How a stream of server-sent events is read: `sse` of a target file."""

    EXAMPLES: ClassVar = {"path": "path: choices[0].delta.content"}

    path: AnswerPath = JsonPath()
    """Where each event contains text."""
    event: str = ""
    """Read only events of this name; empty reads all."""
    done: str = "[DONE]"
    """Data or name of the event that ends the stream."""
    take: Take = "join"

    def is_whole(self, data: bytearray) -> bool:
        """Return whether the stream contains its complete last event."""
        if not self.done or self.done.encode() not in data:
            return False
        return any(self.done in (content.strip(), name) for name, content in parse_events(data))

    def find(self, text: str) -> str:
        """Return the answer in a stream.

        Raises:
            NoAnswer: there is none; gives the reason.
        """
        pieces: list[str] = []
        names: list[str] = []
        for name, content in parse_events(text.encode()):
            if self.done in (content.strip(), name):
                break
            names.append(name)
            if self.event and name != self.event:
                continue
            try:
                pieces += self.path.texts(msgspec.json.decode(content))
            except msgspec.MsgspecError:
                raise NoAnswer(f"an event is not JSON: {one_line(content, 80)}") from None
        answer = (pieces[-1] if self.take == "last" and pieces else "".join(pieces)).strip()
        if answer:
            return answer
        if not names:
            raise NoAnswer(f"the answer is not an event stream: {one_line(text, 80) or 'nothing'}")
        listed = one_line(", ".join(dict.fromkeys(names)), 80)
        raise NoAnswer(f"no event has text at `{self.path.text}`; there were: {listed}")


def parse_events(data: bytes | bytearray) -> Iterator[tuple[str, str]]:
    """Yield name and data of each complete event in a stream."""
    text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n"):
        name, lines = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                lines.append(value)
        if lines:
            yield name, "\n".join(lines)
