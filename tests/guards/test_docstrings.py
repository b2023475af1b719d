"""Docstrings describe the arguments that there are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("ajet_swarm", "core", "proxy", "console", "engine", "mock")
_ARGS = re.compile(r"^Args:\n((?: {4}.*(?:\n|\Z)|\n)+)", re.MULTILINE)
_NAME = re.compile(r"^ {4}\**(\w+):", re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_docstring_describes_an_argument_that_does_not_exist(folder: str) -> None:
    result = [
        f"{path.relative_to(ROOT)}:{argument}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for argument in wrong_arguments(path.read_text(encoding="utf-8"))
    ]
    assert not result, "\n".join(result)


def test_the_guard_sees_a_wrong_argument() -> None:
    source = '''
def f(a, *rest, b=1, **more):
    """Return it.

    Args:
        a: This.
            c: Not an argument, it is indented.
        rest: Those.
        d: That.
        more: Others.
    """

class C:
    """It.

    Args:
        e: This.
        f: That.

    Attributes:
        g: Neither.
    """

    def __init__(self, f):
        pass
'''
    assert list(wrong_arguments(source)) == ["2: f has no argument d", "13: C has no argument e"]


def wrong_arguments(source: str) -> Iterator[str]:
    """Line, name and argument of each description of an argument that there is not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            maker = next((one for one in node.body if getattr(one, "name", "") == "__init__"), None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            maker = node
        else:
            continue
        if not isinstance(maker, ast.FunctionDef | ast.AsyncFunctionDef):
            continue  # a record: its fields are its arguments
        match = _ARGS.search(ast.get_docstring(node) or "")
        for name in _NAME.findall(match[1]) if match else ():
            if name not in _arguments(maker.args):
                yield f"{node.lineno}: {node.name} has no argument {name}"


def _arguments(args: ast.arguments) -> set[str]:
    named = (*args.posonlyargs, *args.args, *args.kwonlyargs)
    return {one.arg for one in (*named, args.vararg, args.kwarg) if one is not None}
