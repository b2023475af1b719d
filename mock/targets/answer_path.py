"""How the answer is found in what a program printed: `answer` of a target file."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ajet_swarm.common.text import one_line
from mock.targets.spec_fields import TargetFields
from mock.targets.templates import NoAnswer, at_path, decoded, steps, text_at

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to find the answer."""

    how: str = "whole"
    """`whole`, `last_line`, `regex`, `json` or `lines` (a JSON event a line)."""
    pattern: re.Pattern[str] | None = None
    path: Path = ()
    told: str = ""
    """The path as it stands in the file."""
    where: tuple[tuple[Path, Any], ...] = ()
    """Of the events: what must stand where."""
    last: bool = False
    """Of several events the last one counts; else they are joined."""
    file: str = ""
    """A file the program writes, a template; empty for standard output."""

    def find(self, text: str) -> str:
        """The answer in `text`.

        Raises:
            NoAnswer: there is none; says why.
        """
        found = self._found(text).strip()
        if not found:
            if text.strip():
                raise NoAnswer(f"the answer is empty: {one_line(text, 120)}")
            where = "its answer file is empty" if self.file else "it printed nothing"
            raise NoAnswer(where)
        return found

    def _found(self, text: str) -> str:
        if self.how == "last_line":
            return next((one for one in reversed(text.split("\n")) if one.strip()), "")
        if self.how == "regex" and self.pattern is not None:
            return self._match(self.pattern, text)
        if self.how == "json":
            return text_at(decoded(text), self.path, self.told) if text.strip() else ""
        return self._events(text) if self.how == "lines" else text

    def _match(self, pattern: re.Pattern[str], text: str) -> str:
        match = None
        for match in pattern.finditer(text):  # noqa: B007 - the last one counts
            pass
        if match is None:
            raise NoAnswer(f"`{pattern.pattern}` is not in what it printed: {one_line(text, 120)}")
        return (match[1] or "") if pattern.groups else match[0]

    def _events(self, text: str) -> str:
        pieces: list[str] = []
        for line in text.split("\n"):
            if not line.lstrip().startswith("{"):
                continue
            try:
                event = msgspec.json.decode(line)
            except msgspec.MsgspecError:
                continue
            if all(at_path(event, path) == [value] for path, value in self.where):
                pieces += [one for one in at_path(event, self.path) if isinstance(one, str)]
        if not pieces:
            raise NoAnswer(f"no event has text at `{self.told}`: {one_line(text, 120)}")
        return pieces[-1] if self.last else "".join(pieces)


def read_answer(fields: TargetFields, name: str = "answer") -> Reading:
    """The field `answer`: a word, or one of `regex`, `json`, `lines`; each with `file`.

    Raises:
        TargetFileError: it cannot be used.
    """
    if fields.is_scalar(name):
        return Reading(how=fields.get(name, Literal["whole", "last_line"]))
    inner = fields.inner(name)
    if inner is None:
        return Reading()
    file = inner.text("file")
    told = inner.text("regex"), inner.text("json"), inner.text("lines")
    where = inner.get("where", dict, {})
    last = inner.get("take", Literal["join", "last"]) == "last"
    inner.check_unknown()
    if sum(map(bool, told)) > 1:
        raise fields.fault(name, "has more than one of regex, json and lines")
    regex, path, lines = told
    if regex:
        pattern = inner.checked("regex", _pattern, regex)
        return Reading(how="regex", pattern=pattern, file=file)
    if path or lines:
        field = "json" if path else "lines"
        return Reading(
            how=field,
            path=inner.checked(field, steps, path or lines),
            told=path or lines,
            where=tuple((inner.checked("where", steps, str(k)), v) for k, v in where.items()),
            last=last,
            file=file,
        )
    if not file:
        raise fields.fault(name, "says nothing", "Give regex, json, lines or file")
    return Reading(file=file)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.MULTILINE | re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
