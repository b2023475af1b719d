"""Reader of YAML files written by an operator: typed fields, every fault with its line.

`FieldReader` reads the fields of one mapping by name and converts each to its type (msgspec).
`Faults` reads the file and collects its faults, so that all are reported at once.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import closest, did_you_mean, known_names, one_line
from ajet_swarm.common.yaml_positions import (
    Entry,
    YamlError,
    compose,
    construct,
    entries,
    is_mapping,
    is_null,
    is_scalar,
    line_of,
)
from core.whole_file import read_small

MAX_BYTES = 1 << 20
"""Maximum size of a file in bytes."""
FIELDS = "is not a list of fields, as `name: value` lines"

Text = str | int | float
"""Type of a text field; a number is read as its text."""


_DESCRIPTIONS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Text: "text",
    list: "a list",
    list[int]: "a list of whole numbers",
    list[Text]: "a list of texts",
    dict[str, Text]: "a list of NAME: TEXT",
    dict: FIELDS.removeprefix("is not "),
}
"""Type -> its name in a fault."""


class Wrong(NamedTuple):
    """What is wrong with a value, and where in it."""

    steps: tuple[str | int, ...]
    """The fields and places that lead to it; empty for the value as a whole."""
    problem: str
    """A predicate, such as "is invalid: expected `int`, got `str`"."""
    todo: str = ""
    """Remedy."""


def explained(error: str, value: Any, kind: Any) -> Wrong:
    """Return what a conversion error of msgspec says, with the fields in place of its `[...]`.

    Args:
        error: Text of the error.
        value: The value that was converted.
        kind: Its type.
    """
    message, of_key, at = error.replace(" - at `key` in `$", " - at `$!").partition(" - at `$")
    steps: list[str | int] = []
    for step in re.findall(r"\[[^]]*\]|[^.[]+", at.strip("!.`")):
        kinds = {get_origin(option): option for option in (kind, *get_args(kind))}
        part: str | int = step
        if step == "[...]":  # any key of a mapping
            kind = get_args(kinds[dict])[1]
            part = next(str(name) for name, item in value.items() if not _fits(item, kind))
        elif step.startswith("["):
            part = int(step[1:-1])
            kind = next(
                (get_args(kinds[type_])[0] for type_ in (list, tuple) if type_ in kinds), None
            )
        else:
            kind = _fields(kind).get(step)
        steps.append(part)
        value = value[part]
    if unknown := re.search("unknown field `(.*)`", message):
        known = _fields(kind)
        todo = did_you_mean(unknown[1], known) or f"Known: {', '.join(known)}"
        return Wrong((*steps, unknown[1]), "is unknown", todo)
    return Wrong(tuple(steps), *_problem(message, bool(of_key and at.startswith("!")), value, kind))


def _problem(message: str, of_key: bool, value: Any, kind: Any) -> tuple[str, str]:
    """Return problem and remedy; both quote at most a word."""
    quotes = "Put it in quotes"
    if of_key:
        return "has a key that is not text", quotes
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "must be a section with keys", ""
    if get_origin(kind) is Literal:
        words = get_args(kind)
        hints = did_you_mean(str(value), words), f"Valid: {', '.join(words)}"
        return f"cannot be `{one_line(str(value), 40)}`", " ".join(filter(None, hints))
    bounds = ""
    if get_origin(kind) is Annotated:
        kind, meta = get_args(kind)
        bounds = _bounds(meta)
        if type(value) in (int, kind):
            return f"cannot be {value:g}", f"Give {_DESCRIPTIONS[kind]}{bounds}"
    unquoted = kind in (str, Text) and not isinstance(value, list | dict)
    described = _DESCRIPTIONS.get(kind) or _DESCRIPTIONS.get(get_origin(kind))
    problem = f"is not {described}{bounds}" if described else f"is invalid: {message.lower()}"
    return problem, quotes if unquoted else ""


def _bounds(meta: msgspec.Meta) -> str:
    """Return the bounds of a number: ` from 0 to 1`."""
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge:g} to {meta.le:g}"
    return f" of {meta.ge:g} or more" if meta.ge is not None else f" above {meta.gt:g}"


def _fields(kind: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def path_text(steps: Iterable[str | int]) -> str:
    """Return steps as the end of a dotted path: `.servers[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _line_at(entry: Entry, steps: Iterable[str | int]) -> int:
    """Return the line of a value within the value of a field."""
    line, node = entry.line, entry.node
    for step in steps:
        if isinstance(step, int):
            node = node.value[step]
            line = line_of(node)
        else:
            found = next(inner for inner in entries(node) if inner.name == step)
            line, node = found.line, found.node
    return line


class FileFault(UsageError):
    """A fault of a file; `more` holds the other faults of the same file.

    Attributes:
        line: Counted from 1; 0 when the fault has no line.
    """

    def __init__(self, what: str, where: str = "", todo: str = "", line: int = 0) -> None:
        self.line = line
        self.more: tuple[FileFault, ...] = ()
        super().__init__(what, where, todo)

    def __str__(self) -> str:
        """Return one line per fault."""
        return "\n".join((super().__str__(), *map(str, self.more)))


F = TypeVar("F", bound=FileFault)
T = TypeVar("T")


def joined(faults: Iterable[F]) -> F:
    """Return the first fault in the file, with all others as its `more`; needs at least one."""
    flat: list[Any] = [part for fault in faults for part in (fault, *fault.more)]
    for fault in flat:
        fault.more = ()
    first, *others = sorted(flat, key=lambda fault: int(fault.line))
    first.more = tuple(others)
    return cast(F, first)


class Faults(Generic[F]):
    """Collector of the faults of one file.

    Args:
        kind: Class of the faults.
        make: Creates a fault from a line, a field's dotted path, a problem and a remedy. The path
            is empty for the file as a whole; the problem is a predicate, such as "is not a number".
    """

    def __init__(self, kind: type[F], make: Callable[[int, str, str, str], F]) -> None:
        self._kind = kind
        self._make = make
        self.collected: list[F] = []

    def fault(self, line: int, field: str, problem: str, todo: str = "") -> F:
        """Return a fault."""
        return self._make(line, field, problem, todo)

    def add(self, line: int, field: str, problem: str, todo: str = "") -> None:
        """Collect a fault."""
        self.collected.append(self._make(line, field, problem, todo))

    @contextlib.contextmanager
    def collect(self) -> Iterator[None]:
        """Catch and collect the fault that the block raises."""
        try:
            yield
        except self._kind as fault:
            self.collected += [fault, *cast(tuple[F, ...], fault.more)]

    def read(self, file: Path) -> str:
        """Return the text of a file, with unchanged line ends.

        Raises:
            FileFault: It cannot be read, is too large or is not UTF-8.
        """
        try:
            data = read_small(file, MAX_BYTES)
            return data.decode("utf-8-sig")
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise self.fault(0, "", f"cannot be read: {why}", "Correct the path") from error
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            problem = f"is not UTF-8 at byte {error.start + 1}"
            raise self.fault(line, "", problem, "Save it as UTF-8") from error

    def compose(self, text: str) -> Any:
        """Return the root node of a text; None when it is empty.

        Raises:
            FileFault: The text is not YAML.
        """
        try:
            return compose(text)
        except YamlError as error:
            todo = "Check the indentation, and put texts in quotes"
            problem = f"is not YAML: {one_line(error.problem)}"
            raise self.fault(error.line, "", problem, todo) from error


class FieldReader(Generic[F]):
    """Reader of the fields of one mapping in a file.

    Args:
        node: The mapping; null counts as an empty one.
        faults: Collector of the file; it receives keys that are not text or repeated.
        path: Dotted path of the mapping; empty for the root.
        todo: Remedy when the node is not a mapping.

    Raises:
        FileFault: The node is neither a mapping nor null.
    """

    def __init__(self, node: Any, faults: Faults[F], path: str = "", todo: str = "") -> None:
        self.faults = faults
        self.path = path
        self.line = line_of(node) if node is not None else 1
        if not is_mapping(node) and not is_null(node):
            raise faults.fault(self.line, path, FIELDS, todo)
        self.entries: dict[str, Entry] = {}
        """The fields by name, in the order of the file."""
        self._read: set[str] = set()
        """Names of the fields that were requested."""
        for entry in entries(node) if is_mapping(node) else ():
            if entry.problem:
                field = self.path_of(entry.name) if entry.name else path
                faults.add(entry.line, field, entry.problem)
            else:
                self.entries[entry.name] = entry

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def value(self, name: str, default: Any = None) -> Any:
        """Return a field's YAML value without conversion; `default` when the field is missing."""
        self._read.add(name)
        if name not in self.entries:
            return default
        try:
            return construct(self.entries[name].node)
        except YamlError as error:
            cause = one_line(error.problem, 120)
            raise self.fault(name, f"cannot be read: {cause}") from error

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """Return a field's value, converted by msgspec.

        Args:
            name: Name of the field.
            kind: Type, with bounds: `Annotated[float, Meta(ge=0, le=1)]`.
            default: Returned when the field is missing.

        Raises:
            FileFault: The value has another type or is out of bounds.
        """
        value = self.value(name)
        if name not in self.entries:
            return default
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            wrong = explained(str(error), value, kind)
            line = _line_at(self.entries[name], wrong.steps)
            path = one_line(self.path_of(name) + path_text(wrong.steps), 80)
            raise self.faults.fault(line, path, wrong.problem, wrong.todo) from error

    def text(self, name: str, default: str = "") -> str:
        """Return a field's text; a number is its text."""
        return str(self.get(name, Text, default))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a field's list of texts; empty when the field is missing."""
        return tuple(map(str, self.get(name, list[Text], ())))

    def named_texts(self, name: str) -> dict[str, str]:
        """Return a field's mapping of texts; empty when the field is missing."""
        return {key: str(text) for key, text in self.get(name, dict[str, Text], {}).items()}

    def inner(self, name: str) -> "FieldReader[F] | None":
        """Return a reader of the mapping in a field; None when the field is missing."""
        self._read.add(name)
        if name not in self.entries:
            return None
        return FieldReader(self.entries[name].node, self.faults, self.path_of(name))

    def checked(self, name: str, make: Callable[[Any], T], value: Any) -> T:
        """Return `make(value)`; its ValueError becomes a fault of the field."""
        try:
            return make(value)
        except ValueError as error:
            raise self.fault(name, str(error)) from error

    def is_scalar(self, name: str) -> bool:
        """Return whether a field exists and is neither a mapping nor a list."""
        return name in self.entries and is_scalar(self.entries[name].node)

    def require(self, name: str, example: str) -> None:
        """Raise a fault when a field is missing; it names a similar unread field, if any."""
        if name not in self.entries:
            unread = [field for field in self.entries if field not in self._read]
            for other in closest(name, unread):
                raise self.fault(other, "is unknown", f"Did you mean `{name}`?")
            problem, todo = "is missing", f"Example: `{example}`"
            raise self.faults.fault(self.line, self.path_of(name), problem, todo)

    def check_unknown(self, known: Iterable[str] | None = None) -> None:
        """Raise a fault for all fields that are not `known`; by default, those never requested."""
        names = sorted(self._read if known is None else known)
        if unknown := [self.unknown(name, names) for name in self.entries if name not in names]:
            raise joined(unknown)

    def unknown(self, name: str, known: Iterable[str]) -> F:
        """Return the fault of a field whose name is not `known`."""
        return self.fault(name, "is unknown", known_names(name, known))

    def fault(self, name: str, problem: str, todo: str = "") -> F:
        """Return a fault of one field, at the line of the field or, if missing, of the mapping."""
        line = self.entries[name].line if name in self.entries else self.line
        return self.faults.fault(line, self.path_of(name), problem, todo)

    def path_of(self, name: str) -> str:
        """Return the dotted path of a field, at most 80 characters."""
        return one_line(f"{self.path}.{name}" if self.path else name, 80)
