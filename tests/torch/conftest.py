"""Every test of this folder needs the packages of the torch backend, and has the mark `torch`."""

from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
OTHERS = {"test_hub.py", "test_trl.py"}
"""Files that say themselves which packages they need."""
collect_ignore = [
    file.name
    for file in FOLDER.glob("test_*.py")
    if file.name not in OTHERS and not (find_spec("torch") and find_spec("peft"))
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.torch)
