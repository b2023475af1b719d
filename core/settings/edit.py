"""Edits of YAML files written by an operator: comments, order and everything else are preserved."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.yaml_positions import compose, is_mapping, is_null, is_scalar, named_nodes
from core.whole_file import replace_file


def put(text: str, path: Sequence[str], literal: str) -> str:
    """Return `text` with one value set; a missing one is added at the end of its section.

    Args:
        text: A YAML file, whose root is a mapping or empty.
        path: Key of the value, from the root on.
        literal: The value as YAML.

    Raises:
        AjetError: the value is in a place where it cannot be edited.
    """
    node = compose(text)
    if node is None or is_null(node):
        head = text if not text or text.endswith("\n") else f"{text}\n"
        return head + _block(path, literal, 0, _line_end(text))
    for depth, name in enumerate(path):
        inner = dict(named_nodes(node)).get(name)
        if inner is None:
            return _added(text, node, path[depth:], literal)
        if sum(value is inner for _, value in named_nodes(node)) > 1:
            raise AjetError(f"`{name}` is an alias of another value", todo="Edit the file")
        node = inner
    return _replaced(text, node, literal)


def _added(text: str, node: Any, path: Sequence[str], literal: str) -> str:
    """Return the text with a path added to a section."""
    start = node.start_mark.index
    if not is_mapping(node):
        if not is_null(node):
            raise AjetError("the value is not a section", todo="Edit the file")
        space = "" if text[start - 1 : start].isspace() else " "
        return f"{text[:start]}{space}{_flow(path, literal)}{text[node.end_mark.index :]}"
    if node.flow_style:
        at = text.index("{", start) + 1
        inner = _flow(path, literal)[1:-1]
        return f"{text[:at]}{inner}{', ' if node.value else ''}{text[at:]}"
    key, last = node.value[-1]
    while not is_scalar(last) and not last.flow_style:
        last = last.value[-1][1] if is_mapping(last) else last.value[-1]
    at = max(key.end_mark.index, last.end_mark.index)  # an alias stands before its key
    if text[at - 1] != "\n":
        at = text.find("\n", at) + 1 or len(text)
    end = _line_end(text)
    head = text[:at] if text[at - 1] == "\n" else f"{text[:at]}{end}"
    return head + _block(path, literal, node.start_mark.column, end) + text[at:]


def _block(path: Sequence[str], literal: str, column: int, end: str) -> str:
    """Return the lines of a path in block style."""
    lines = []
    for depth, name in enumerate(path):
        space = " " * (column + 2 * depth)
        last = depth == len(path) - 1
        lines.append(f"{space}{name}:{f' {literal}' if last else ''}{end}")
    return "".join(lines)


def _flow(path: Sequence[str], literal: str) -> str:
    """Return a path as a mapping in flow style."""
    for name in reversed(path):
        literal = f"{{{name}: {literal}}}"
    return literal


def _replaced(text: str, node: Any, literal: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    if not is_scalar(node):
        value = text[start:end].rstrip()
        if not getattr(node, "flow_style", False):
            raise AjetError("the value is not a single one", todo="Edit the file")
        end = start + len(value)
    space = "" if text[start - 1 : start].isspace() else " "
    return f"{text[:start]}{space}{literal}{text[end:]}"


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def with_comment(text: str, path: Sequence[str], mark: str, comment: str) -> str:
    """Return `text` with the comment above a key replaced, if it begins with `mark`.

    A comment without the mark is an operator's own: the new one is added below it.

    Args:
        text: A YAML file.
        path: Key, from the root on; it exists.
        mark: Beginning of the comments that may be replaced.
        comment: The new comment, without `#`.
    """
    node, key = compose(text), None
    for name in path:
        if not is_mapping(node) or node.flow_style:
            return text
        key, node = next((pair for pair in node.value if str(pair[0].value) == name), (None, None))
        if key is None:
            return text
    assert key is not None
    at = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[at : key.start_mark.index].strip():
        return text
    above = text.rfind("\n", 0, at - 1) + 1 if at else 0
    line = f"{' ' * key.start_mark.column}# {comment}{_line_end(text)}"
    if text[above:at].strip().startswith(f"# {mark}"):
        return text[:above] + line + text[at:]
    return text[:at] + line + text[at:]


def write(file: Path, text: str, subject: str, mode: int = 0o600) -> None:
    """Replace the file atomically: a reader sees the old text or the new one.

    Args:
        file: A link is followed.
        text: The new text.
        subject: What the file contains, in errors: `the settings`.
        mode: Mode of a new file; an existing one keeps its own.

    Raises:
        AjetError: the file cannot be written.
    """
    file = file.resolve()
    content = text.encode("utf-8")
    try:
        with contextlib.suppress(OSError):
            mode = file.stat().st_mode & 0o777
        replace_file(file, content, mode)
    except OSError as error:
        raise AjetError(
            f"{subject} cannot be written: {error.strerror}",
            str(file),
            "Correct the permissions of its folder",
        ) from error
