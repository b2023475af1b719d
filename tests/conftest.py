"""What all tests share: a clean environment and a home of their own."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.home import Home
from engine import numerics

numerics.prepare()  # before anything brings numpy in, as in the engine's own process


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("AJET", "OPENAI_", "ANTHROPIC_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AJET_CONSOLE_HOME", str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """What a test makes of the process's log is gone after it: captured lines cost memory."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home.open(tmp_path / "home")
