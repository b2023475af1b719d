"""`docs/contributing/conformance.md` names a test or a reason for each item, and they exist."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ITEMS = 80

_ROW = re.compile(r"^\| (\d+|[a-z]) \|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[tuple[str, str, str]]:
    """Number, tests and remark of each item; complaints have letters."""
    text = (ROOT / "docs" / "contributing" / "conformance.md").read_text()
    result = []
    for match in _ROW.finditer(text):
        _, tests, remark = (cell.strip() for cell in match[2].split(" | "))
        result.append((match[1], tests, remark))
    return result


@functools.cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(one.name for one in tree.body if isinstance(one, kinds))


def test_each_item_is_listed_once_and_in_order() -> None:
    numbers = [number for number, _, _ in rows()]
    assert numbers[:ITEMS] == [str(number) for number in range(1, ITEMS + 1)]
    letters = numbers[ITEMS:]
    assert letters == [chr(ord("a") + at) for at in range(len(letters))]


def test_each_has_a_test_or_a_reason() -> None:
    bare = [number for number, tests, remark in rows() if not (_TEST.search(tests) or remark)]
    assert not bare


def test_the_tests_are_there() -> None:
    named = {pair for _, tests, _ in rows() for pair in _TEST.findall(tests)}
    assert len(named) > 100
    lost = [f"{file}::{name}" for file, name in sorted(named)
            if not (TESTS / file).is_file() or name not in names_in(file)]  # fmt: skip
    assert not lost


def test_numbered_tests_are_named_at_their_item() -> None:
    result = {number: set(_TEST.findall(tests)) for number, tests, _ in rows()}
    missing = []
    for path in sorted((TESTS / "conformance").glob("test_*.py")):
        file = f"conformance/{path.name}"
        for name in sorted(names_in(file)):
            numbers = re.match(r"test_((?:\d\d_)+)", name)
            for number in numbers[1].strip("_").split("_") if numbers else ():
                if (file, name) not in result[str(int(number))]:
                    missing.append(f"{number}: {name}")
    assert not missing
