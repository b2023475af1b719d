"""The question and the notes before a model is fetched."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from console.cli import main
from console.cli.engine.backend import have_smollm2
from core.runtime.home import Home
from engine.torch import packages
from engine.torch.files import smollm2
from engine.torch.files.smollm2 import ModelError, SmolFiles
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText


@pytest.fixture
def pips(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Commands that would have run; they fetch nothing. All packages of torch are there."""
    ran: list[Sequence[str]] = []

    def pip(command: Sequence[str], seconds: float) -> int:
        ran.append(command)
        return 1

    monkeypatch.setattr(smollm2, "run_pip", pip)
    monkeypatch.setattr(packages, "missing", lambda gguf=False: [])
    return ran


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path)


def test_without_terminal_and_yes_nothing_is_downloaded(
    cli: Cli, home: Home, pips: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    words = ["--home", home.root, "--backend", "torch", "--model", "smollm2"]
    shown = cli.refused("run", "engine", *words)
    assert "needs confirmation. Add --yes" in shown
    assert shown.count("\n") == 1
    assert not pips


def test_size_disk_and_memory_are_shown_before_the_confirmation(
    home: Home,
    pips: list[Sequence[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", TerminalText("n\n"))
    assert not have_smollm2(home, yes=False)
    captured = capsys.readouterr()
    for fact in ("93 MB", "98 MB", "59 MB", "GB", "Apache-2.0", "Nothing was downloaded"):
        assert fact in captured.out
    assert "[y/N]" in captured.err
    assert not pips


@pytest.mark.parametrize("answer", ["flag", "word"])
def test_after_the_confirmation_pip_runs_and_its_failure_is_reported(
    home: Home, pips: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(sys, "stdin", TerminalText("yes\n"))
    with pytest.raises(ModelError, match="pip did not fetch"):
        have_smollm2(home, yes=answer == "flag")
    assert len(pips) == 1
    assert not SmolFiles(home).ready


def test_an_existing_model_needs_no_confirmation(home: Home, pips: list[Sequence[str]]) -> None:
    files = SmolFiles(home)
    files.folder.mkdir(parents=True)
    files.model.write_bytes(b"as fetched")
    assert have_smollm2(home, yes=False)
    assert not pips


def test_a_local_wheel_is_verified_and_needs_no_network(
    home: Home, pips: list[Sequence[str]]
) -> None:
    files = SmolFiles(home)
    files.folder.mkdir(parents=True)
    files.wheel.write_bytes(b"another wheel")
    with pytest.raises(ModelError, match="differs from its checksum"):
        have_smollm2(home, yes=False)
    assert not pips


def test_the_console_asks_as_well(
    home: Home, pips: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AJET_CONSOLE__ENGINE__BACKEND", "torch")
    monkeypatch.setenv("AJET_CONSOLE__ENGINE__MODEL", "smollm2")
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, TerminalText("no\n"))
    assert main(["--home", str(home.root)]) == 1
    assert not pips
