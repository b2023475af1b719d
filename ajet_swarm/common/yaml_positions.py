"""YAML with positions: the node tree of a text, and the line of every key in it.

The one YAML reader of settings, `rewards.yaml`, target files and jobs. It needs PyYAML.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ajet_swarm.common.lazy_yaml import yaml


class YamlError(ValueError):
    """A text that is not YAML, or that has a mapping with unusable keys.

    Attributes:
        problem: What is wrong, on one line; it may quote the text.
        line: Counted from 1; 0 when the problem has no line.
        is_syntax: The text is not YAML at all.
    """

    def __init__(self, problem: str, line: int, *, is_syntax: bool = False) -> None:
        self.problem = problem
        self.line = line
        self.is_syntax = is_syntax
        super().__init__(problem)


class Entry(NamedTuple):
    """One key of a mapping with its value."""

    name: str
    """Empty for a key that is not text."""
    line: int
    """Of the key, counted from 1. The value may be an alias, which stands elsewhere."""
    node: Any
    problem: str = ""
    """Why the key cannot be used; empty when it can."""


class PlacedErrors:
    """Mixin of a loader: its errors about a value have the value's place."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Return the Python value of a node."""
        try:
            return super().construct_object(node, deep)  # type: ignore[misc]  # of the loader
        except (ValueError, TypeError, OverflowError) as error:
            problem, mark = str(error), node.start_mark
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=mark) from error


def compose(text: str) -> Any:
    """Return the root node of a YAML text; None when the text is empty.

    Raises:
        YamlError: The text is not YAML.
    """
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise syntax_error(error) from error


def syntax_error(error: Exception) -> YamlError:
    """Return an error of the YAML library as a `YamlError`."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or str(error)
    return YamlError(
        str(problem).partition("\n")[0] or "nested too deeply",
        mark.line + 1 if mark else 0,
        is_syntax=True,
    )


@functools.cache
def _loader() -> Any:
    return type("Loader", (PlacedErrors, yaml.SafeLoader), {})


def construct(node: Any, loader: Any = None) -> Any:
    """Return the Python value of a node.

    Args:
        node: As `compose` returns it.
        loader: Class of a loader with `PlacedErrors`; the safe one when left out.

    Raises:
        YamlError: The node has no value, as a date in month 13 or a Python object.
    """
    constructor = (loader or _loader())("")
    try:
        return constructor.construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise syntax_error(error) from error
    finally:
        constructor.dispose()


def line_of(node: Any) -> int:
    """Return the line a node begins on, counted from 1."""
    return int(node.start_mark.line) + 1


def is_mapping(node: Any) -> bool:
    """Return whether a node is a mapping."""
    return isinstance(node, yaml.MappingNode)


def named_nodes(node: Any) -> list[tuple[str, Any]]:
    """Return key and value node of each entry of a mapping; none of anything else."""
    return [(str(key.value), value) for key, value in node.value] if is_mapping(node) else []


def is_scalar(node: Any) -> bool:
    """Return whether a node is a single value: neither a mapping nor a list."""
    return isinstance(node, yaml.ScalarNode)


def is_null(node: Any) -> bool:
    """Return whether a node is empty or null."""
    return is_scalar(node) and node.tag == "tag:yaml.org,2002:null"


def entries(mapping: Any) -> Iterator[Entry]:
    """Yield the keys of a mapping in their order; a repeated one has a `problem`."""
    first: dict[str, int] = {}
    for key, value in mapping.value:
        line = line_of(key)
        if not is_scalar(key):
            yield Entry("", line, value, "has a key that is not text")
        elif key.value in first:
            problem = f"is defined twice, first on line {first[key.value]}"
            yield Entry(key.value, line, value, problem)
        else:
            first[key.value] = line
            yield Entry(key.value, line, value)


def positions(root: Any, enter: Callable[[str], bool] = lambda name: True) -> dict[str, int]:
    """Return the line of every key below `root`, by its dotted path.

    Args:
        root: A node; anything but a mapping has no keys.
        enter: Whether the keys below a key of this name are wanted.

    Raises:
        YamlError: A key is not text, or is defined twice; the problem names its path.
    """
    return dict(_positions(root, "", enter, set())) if is_mapping(root) else {}


def _positions(
    mapping: Any, above: str, enter: Callable[[str], bool], seen: set[int]
) -> Iterator[tuple[str, int]]:
    if id(mapping) in seen:
        return  # an alias: its keys have their lines already
    seen.add(id(mapping))
    for entry in entries(mapping):
        path = above + entry.name
        if entry.problem:
            name = path if entry.name else above.rstrip(".")
            subject = f"`{name}`" if name else "this"
            raise YamlError(f"{subject} {entry.problem}", entry.line)
        yield path, entry.line
        if is_mapping(entry.node) and enter(entry.name):
            yield from _positions(entry.node, f"{path}.", enter, seen)
