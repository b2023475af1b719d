"""Every test of this folder needs the packages of the torch backend, and has the mark `torch`."""

from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
OTHERS = {"test_hub.py", "test_trl.py"}
"""Files that say themselves which packages they need."""


class _Skipped(pytest.Module):
    """A file that is not imported."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("torch and peft are not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> _Skipped | None:
    """Skip a file of the backend without its packages, also if it is named on the command line."""
    needed = module_path.parent == FOLDER and module_path.name not in OTHERS
    if needed and not (find_spec("torch") and find_spec("peft")):
        return _Skipped.from_parent(parent, path=module_path)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.torch)
