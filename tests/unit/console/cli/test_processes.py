"""The console's process: what follows the setup that its first start offers."""

import io
import sys
from pathlib import Path

import pytest

from console.cli import parse, processes
from core.runtime.home import Home


@pytest.mark.parametrize(
    ("code", "result"), [(0, 7), (1, 7), (2, 7), (130, 7), (143, 143), (129, 129)]
)
def test_the_console_opens_again_unless_a_signal_from_outside_ended_the_setup(
    code: int, result: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.cli.main", lambda argv: code)
    monkeypatch.setattr(processes, "console", lambda args: 7)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert processes._setup_and_console(parse([]), Home.at(tmp_path)) == result
