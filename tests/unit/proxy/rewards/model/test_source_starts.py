"""Slow parts that fail to start or to close: no part is left running."""

import sys
import types
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ajet_swarm.common.errors import AjetError
from core.plugins import Plugins
from proxy.rewards import part as part_module
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import KINDS, PartEnvironment, PartInput, PartKind, PartValue
from proxy.rewards.source import SourceHealth

FAILS: dict[str, Exception] = {}
"""The exception of a part, by its name and its method."""


class Named:
    """A slow part that counts as running from its start to its close."""

    running: ClassVar[set[str]] = set()

    def __init__(self, name: str) -> None:
        self.name = name

    async def score(self, group: PartInput) -> list[PartValue]:
        return [PartValue(1.0) for _ in group.readings]

    async def start(self) -> None:
        Named.running.add(self.name)
        if (error := FAILS.get(f"{self.name} start")) is not None:
            raise error

    async def close(self) -> None:
        Named.running.discard(self.name)
        if (error := FAILS.get(f"{self.name} close")) is not None:
            raise error

    def health(self) -> SourceHealth:
        return SourceHealth(True, None, self.name)

    def add_listener(self, listener: Any) -> Callable[[], None]:
        return lambda: None


def _make(name: str, settings: Any, where: Path) -> Named:
    return Named(name)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of two parts of another package."""
    module = types.ModuleType("a_package_of_slow_parts")
    module.__dict__.update(NAMED=PartKind(_make, "A test's", {}, slow=True))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    point = EntryPoint("named", f"{module.__name__}:NAMED", part_module.ENTRY_POINTS)
    plugins = Plugins(part_module.ENTRY_POINTS, PartKind, find=lambda group: [point])
    monkeypatch.setattr(KINDS, "plugins", plugins)
    Named.running.clear()
    FAILS.clear()
    file = tmp_path / "rewards.yaml"
    file.write_text("parts:\n  one: {kind: named}\n  two: {kind: named}\n")
    return file


@pytest.mark.parametrize(
    ("error", "result"),
    [(AjetError("no such server"), "no such server"), (ValueError("odd"), "ValueError: odd")],
)
async def test_a_part_that_does_not_start_leaves_no_other_running(
    file: Path, error: Exception, result: str
) -> None:
    FAILS["two start"] = error
    source = ComposedSource(file, PartEnvironment(file.parent))
    await source.start()
    fault = source.health().error
    assert fault is not None
    assert fault.cause == result
    assert Named.running == set()
    await source.close()


async def test_a_part_that_does_not_close_leaves_no_other_open(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    FAILS["one close"] = ValueError("odd")
    source = ComposedSource(file, PartEnvironment(file.parent))
    await source.start()
    assert Named.running == {"one", "two"}
    await source.close()
    assert Named.running == set()
    assert "a part could not be closed" in caplog.text
