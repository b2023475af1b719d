"""Each planted fault still fits the code, so that a change of the code carries its faults along."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.planted.faults import Fault, load

ROOT = Path(__file__).parents[2]
FAULTS = load()


def test_names_are_unique() -> None:
    names = Counter(fault.name for fault in FAULTS)
    assert not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_changes_valid_code(fault: Fault) -> None:
    source = (ROOT / fault.file).read_text()
    planted = fault.planted(source)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(source))
    ast.parse(fault.probed(source, "pass"))
    assert fault.promise.endswith(").")
