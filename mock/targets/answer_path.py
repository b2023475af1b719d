"""Rules for finding the answer in a program's output: `answer` of a target file."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ajet_swarm.common.text import one_line
from mock.targets.spec_fields import TargetFields
from mock.targets.templates import NoAnswer, parse_json, parse_path, text_at, values_at

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRule:
    """One rule for finding the answer."""

    how: str = "whole"
    """`whole`, `last_line`, `regex`, `json` or `lines` (one JSON event per line)."""
    pattern: re.Pattern[str] | None = None
    path: Path = ()
    path_text: str = ""
    """The path as written in the file."""
    where: tuple[tuple[Path, Any], ...] = ()
    """Conditions on an event: path and required value."""
    last: bool = False
    """Use the last of several events; otherwise they are joined."""
    file: str = ""
    """Template of a file that the program writes; empty for standard output."""

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
        if self.how == "regex" and self.pattern is not None:
            return self._match(self.pattern, text)
        if self.how == "json":
            return text_at(parse_json(text), self.path, self.path_text) if text.strip() else ""
        return self._events(text) if self.how == "lines" else text

    def _match(self, pattern: re.Pattern[str], text: str) -> str:
        match = None
        for match in pattern.finditer(text):  # noqa: B007 - the last one counts
            pass
        if match is None:
            raise NoAnswer(f"`{pattern.pattern}` is not in its output: {one_line(text, 120)}")
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
            if all(values_at(event, path) == [value] for path, value in self.where):
                pieces += [piece for piece in values_at(event, self.path) if isinstance(piece, str)]
        if not pieces:
            raise NoAnswer(f"no event has text at `{self.path_text}`: {one_line(text, 120)}")
        return pieces[-1] if self.last else "".join(pieces)


def read_answer(fields: TargetFields, name: str = "answer") -> AnswerRule:
    """Read the field `answer`: a word, or a mapping with one of `regex`, `json` and `lines`,
    and optionally `file`.

    Raises:
        TargetFileError: it is invalid.
    """
    if fields.is_scalar(name):
        return AnswerRule(how=fields.get(name, Literal["whole", "last_line"]))
    inner = fields.inner(name)
    if inner is None:
        return AnswerRule()
    file = inner.text("file")
    path_text = inner.text("regex"), inner.text("json"), inner.text("lines")
    where = inner.get("where", dict, {})
    last = inner.get("take", Literal["join", "last"]) == "last"
    inner.check_unknown()
    if sum(map(bool, path_text)) > 1:
        raise fields.fault(name, "has more than one of regex, json and lines")
    regex, path, lines = path_text
    if regex:
        pattern = inner.checked("regex", _pattern, regex)
        return AnswerRule(how="regex", pattern=pattern, file=file)
    if path or lines:
        field = "json" if path else "lines"
        return AnswerRule(
            how=field,
            path=inner.checked(field, parse_path, path or lines),
            path_text=path or lines,
            where=tuple((inner.checked("where", parse_path, str(k)), v) for k, v in where.items()),
            last=last,
            file=file,
        )
    if not file:
        raise fields.fault(name, "has no rule", "Give regex, json, lines or file")
    return AnswerRule(file=file)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.MULTILINE | re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
