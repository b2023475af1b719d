"""A small YAML file, read so that each complaint has its file, line and field."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line

LARGEST = 1 << 20
T = TypeVar("T")


class TargetFileError(UsageError):
    """A target file cannot be used, for one fault or for several."""

    def __init__(self, what: str, where: str = "", todo: str = "", line: int = 0) -> None:
        self.line = line
        """1-based; 0 when there is no such place."""
        self.more: tuple[TargetFileError, ...] = ()
        """The other faults of the file, by line; this one is the first."""
        super().__init__(what, where, todo)

    def __str__(self) -> str:
        """One line a fault."""
        return "\n".join((super().__str__(), *(str(one) for one in self.more)))


def joined(faults: Iterable[TargetFileError]) -> TargetFileError:
    """All faults as one, the first in the file first and one a line; there is at least one."""
    by_line: dict[int, TargetFileError] = {}
    for fault in faults:
        by_line.setdefault(fault.line, fault)
    first, *more = sorted(by_line.values(), key=lambda fault: fault.line)
    first.more = tuple(more)
    return first


class Sheet:
    """One mapping of the file; fields are taken from it one by one.

    Args:
        path: The file, for complaints.
        node: The mapping.
        above: Name of the field it stands in.
    """

    def __init__(self, path: Path, node: yaml.MappingNode, above: str = "") -> None:
        self.path = path
        self._above = above
        self._line = node.start_mark.line + 1
        self._nodes: dict[str, yaml.Node] = {}
        self._lines: dict[str, int] = {}
        self._known: list[str] = []
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            line = key.start_mark.line + 1
            if not name:
                raise self._error("a field's name is no text", line)
            if name in self._nodes:
                raise self._error(f"`{self._full(name)}` stands here twice", line)
            self._nodes[name] = value
            self._lines[name] = line

    @classmethod
    def open(cls, path: Path) -> "Sheet":
        """The file's own mapping.

        Raises:
            TargetFileError: it cannot be read, is no YAML, or no mapping.
        """
        try:
            if path.stat().st_size > LARGEST:
                raise TargetFileError("larger than 1 MB: this is no target file", str(path))
            text = path.read_bytes().decode("utf-8-sig")
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except OSError as error:
            why = error.strerror or "it cannot be read"
            raise TargetFileError(why, str(path), "Name a target file") from error
        except UnicodeDecodeError as error:
            raise TargetFileError(f"not UTF-8 at byte {error.start + 1}", str(path)) from error
        except (yaml.YAMLError, RecursionError) as error:
            raise TargetFileError(*_no_yaml(path, error)) from error
        if not isinstance(node, yaml.MappingNode):
            raise TargetFileError(
                "not a list of fields", f"{path}:1", "Begin with `kind: command` or another kind"
            )
        return cls(path, node)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    # --- taking ----------------------------------------------------------------------------------

    def value(self, name: str, default: Any = None) -> Any:
        """Any value, as YAML reads it."""
        self._known.append(name)
        node = self._nodes.get(name)
        if node is None:
            return default
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            cause = one_line(str(getattr(error, "problem", "") or error), 120)
            raise self.wrong(name, f"cannot be read: {cause}") from error
        finally:
            loader.dispose()

    def text(self, name: str, default: str = "") -> str:
        """Text; a number is its text."""
        found = self.value(name, default)
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            raise self.wrong(name, "is not text")
        return str(found)

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        found = self.value(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.wrong(name, "is not a number")
        if not least <= found <= most:
            raise self.wrong(name, f"cannot be {found:g}", f"From {least:g} to {most:g}")
        return float(found)

    def flag(self, name: str, default: bool) -> bool:
        """Yes or no."""
        found = self.value(name, default)
        if not isinstance(found, bool):
            raise self.wrong(name, "is neither yes nor no")
        return found

    def choice(self, name: str, words: Sequence[str], default: str) -> str:
        """One of some words."""
        found = self.text(name, default)
        if found not in words:
            raise self.wrong(name, f"cannot be `{one_line(found, 40)}`{near(found, words)}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self.value(name, [])
        if not isinstance(found, list) or not all(
            isinstance(one, str | int | float) and not isinstance(one, bool) for one in found
        ):
            raise self.wrong(name, "is not a list of texts")
        return tuple(str(one) for one in found)

    def named_texts(self, name: str) -> dict[str, str]:
        """Names with texts."""
        found = self.value(name, {})
        if not isinstance(found, Mapping):
            raise self.wrong(name, "is not a list of NAME: TEXT")
        for key, one in found.items():
            if not isinstance(key, str) or isinstance(one, bool) or not isinstance(one, str | int):
                raise self.wrong(
                    name, f"`{one_line(str(key), 40)}` is not text", "Put it in quotes"
                )
        return {key: str(one) for key, one in found.items()}

    def inner(self, name: str) -> "Sheet | None":
        """A mapping in this one; None when it is not there."""
        self._known.append(name)
        node = self._nodes.get(name)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(name, "is not a list of fields")
        return Sheet(self.path, node, self._full(name))

    def is_text(self, name: str) -> bool:
        """Whether a field is one word or text."""
        return isinstance(self._nodes.get(name), yaml.ScalarNode)

    def checked(self, name: str, make: Callable[[Any], T], value: Any) -> T:
        """`make(value)`; its ValueError becomes a complaint about the field."""
        try:
            return make(value)
        except ValueError as error:
            raise self.wrong(name, str(error)) from error

    # --- complaints ------------------------------------------------------------------------------

    def done(self) -> None:
        """No further field is known.

        Raises:
            TargetFileError: there is one; with the near names.
        """
        for fault in self.strange(self._known):
            raise fault

    def strange(self, known: Iterable[str]) -> Iterator[TargetFileError]:
        """A fault for each field whose name is not among `known`; with the near names."""
        fields = sorted(set(known))
        for name in self._nodes:
            if name not in fields:
                told = f"there is no field `{one_line(self._full(name), 60)}`"
                todo = f"Fields: {', '.join(fields)}"
                yield self._error(told + near(name, fields), self._lines[name], todo)

    def need(self, name: str, hint: str) -> None:
        """Complain when a field is missing."""
        if name not in self._nodes:
            strange = [one for one in self._nodes if one not in self._known]
            close = difflib.get_close_matches(name, strange, 1, 0.6)
            if close:
                told = f"there is no field `{one_line(self._full(close[0]), 60)}`; did you mean"
                raise self._error(f"{told} `{name}`?", self._lines[close[0]])
            raise self._error(f"`{self._full(name)}` is missing", self._line, f"As `{hint}`")

    def wrong(self, name: str, what: str, todo: str = "") -> TargetFileError:
        """A complaint about one field."""
        return self._error(f"`{self._full(name)}` {what}", self._lines.get(name, self._line), todo)

    def _full(self, name: str) -> str:
        return f"{self._above}.{name}" if self._above else name

    def _error(self, what: str, line: int, todo: str = "") -> TargetFileError:
        return TargetFileError(what, f"{self.path}:{line}", todo, line)


def near(name: str, words: Sequence[str]) -> str:
    """`; did you mean ...?`, or nothing."""
    found = difflib.get_close_matches(name, words, 3, 0.5)
    return f"; did you mean {' or '.join(f'`{one}`' for one in found)}?" if found else ""


def _no_yaml(path: Path, error: Exception) -> tuple[str, str]:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
    problem = getattr(error, "problem", "") or str(error).partition("\n")[0] or "nested too deeply"
    return f"this is no YAML: {one_line(str(problem), 120)}", where
