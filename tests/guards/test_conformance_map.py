"""`tests/data/conformance.yaml` names the tests of each item, and they exist."""

import ast
import functools
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ITEMS = yaml.safe_load((TESTS / "data" / "conformance.yaml").read_text())
NUMBERS = list(range(1, 81))


@functools.cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def test_each_item_is_listed_once_and_in_order() -> None:
    assert [item["item"] for item in ITEMS] == NUMBERS
    assert [item["item"] for item in ITEMS if not item["about"]] == []


def test_each_item_has_tests_that_exist() -> None:
    assert [item["item"] for item in ITEMS if not item["tests"]] == []
    named = {tuple(test.split("::")) for item in ITEMS for test in item["tests"]}
    assert len(named) > 100
    lost = [f"{file}::{name}" for file, name in sorted(named)
            if not (TESTS / file).is_file() or name not in names_in(file)]  # fmt: skip
    assert not lost


def test_numbered_tests_are_named_at_their_item() -> None:
    tests_of = {item["item"]: set(item["tests"]) for item in ITEMS}
    missing = []
    for path in sorted((TESTS / "conformance").glob("test_*.py")):
        file = f"conformance/{path.name}"
        for name in sorted(names_in(file)):
            numbers = re.match(r"test_((?:\d\d_)+)", name)
            for number in numbers[1].strip("_").split("_") if numbers else ():
                if f"{file}::{name}" not in tests_of[int(number)]:
                    missing.append(f"{number}: {name}")
    assert not missing


def test_the_page_lists_differences_of_known_items_in_order() -> None:
    page = (ROOT / "docs" / "contributing" / "conformance.md").read_text()
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert listed == sorted(set(listed) & set(NUMBERS))
