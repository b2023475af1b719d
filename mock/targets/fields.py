"""Reader of target files: each record's fields are read by their types.

`Annotated[T, read_by(function)]` is a field with a reader of its own. A record's `check` says what
types cannot. All faults are collected; a field with a fault keeps its default.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import msgspec
from msgspec import Meta

from core.settings.yaml_file import Faults, FieldReader, FileFault


class TargetFileError(FileFault):
    """A target file has one or more faults."""


TargetFields = FieldReader[TargetFileError]
"""Reader of the fields of a target file, or of a mapping in it."""
Fault = tuple[str, str, str]
"""Field, problem and remedy; an empty field is the mapping itself."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping in a target file."""

    EXAMPLES: ClassVar[Mapping[str, str]] = {}
    """The required fields, each with an example of its line."""

    def check(self) -> Iterator[Fault]:
        """Yield the faults that the types of the fields do not show."""
        yield from ()


R = TypeVar("R", bound=Record)


def faults_of(path: Path) -> Faults[TargetFileError]:
    """Return the fault collector of a target file."""

    def fault(line: int, field: str, problem: str, todo: str) -> TargetFileError:
        what = f"`{field}` {problem}" if field else f"this {problem}"
        return TargetFileError(what, f"{path}:{line}" if line else str(path), todo, line)

    return Faults(TargetFileError, fault)


def read_by(read: Callable[[TargetFields, str], Any]) -> Meta:
    """Return the mark of a field that `read` reads; it gets the file's fields and the name."""
    return Meta(extra={"read": read})


def read_record(
    fields: TargetFields, record: type[R], known: Sequence[str] = (), **given: Any
) -> R:
    """Return the record that a mapping describes; its faults are collected.

    Args:
        fields: The mapping.
        record: Its type.
        known: Fields that are read elsewhere.
        given: Values that are not in the file.
    """
    faults, values = fields.faults, dict(given)
    members = {
        member.name: member.type
        for member in msgspec.structs.fields(record)
        if member.name not in given
    }
    for name, kind in members.items():
        with faults.collect():
            if name in record.EXAMPLES:
                fields.require(name, record.EXAMPLES[name])
            if name in fields:
                values[name] = _value(fields, name, kind)
    with faults.collect():
        fields.check_unknown([*known, *members])
    result = record(**values)
    is_checkable = all(name in values for name in record.EXAMPLES)
    for name, problem, todo in result.check() if is_checkable else ():
        path = fields.path_of(name) if name else fields.path
        line = fields.entries[name].line if name in fields else fields.line
        faults.add(line, path, problem, todo)
    return result


def _value(fields: TargetFields, name: str, kind: Any) -> Any:
    """Return a field's value by its type; a number is a text, too."""
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    for note in get_args(kind)[1:]:
        if isinstance(note, Meta) and note.extra:
            return note.extra["read"](fields, name)
    if kind is str:
        return fields.text(name)
    if kind == dict[str, str]:
        return fields.named_texts(name)
    if kind == tuple[str, ...]:
        return fields.texts(name)
    if isinstance(kind, type) and issubclass(kind, Record):
        inner = fields.inner(name)
        return inner and read_record(inner, kind)
    return fields.get(name, kind)
