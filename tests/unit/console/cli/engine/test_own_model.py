"""The check of the torch backend's model, and the question before it is downloaded."""

import io
import sys
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from console.cli import main
from console.cli.engine.backend import have_own_model
from core.runtime.home import Home
from engine.torch import packages
from engine.torch.files.check import ModelLoadError
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText
from tests.unit.engine.torch.files import stub_hub
from tests.unit.engine.torch.files.model_folders import make_folder
from tests.unit.engine.torch.files.stub_hub import StubHub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StubHub:
    """Hugging Face with an empty cache; all packages of torch are there."""
    monkeypatch.setattr(packages, "missing", lambda gguf=False: [])
    return stub_hub.install(monkeypatch, tmp_path / "cache")


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", TerminalText(text))


def test_the_model_of_the_job_and_a_folder_need_no_question(hub: StubHub, tmp_path: Path) -> None:
    assert have_own_model("", False)
    assert have_own_model(str(make_folder(tmp_path / "model")), False)
    assert not hub.asked


def test_a_folder_that_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", quantization_config={"quant_method": "awq"})
    with pytest.raises(ModelLoadError, match="quantized"):
        have_own_model(str(folder), False)


def test_name_and_size_are_in_the_question(
    hub: StubHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.files["model.safetensors"] = bytes(2_000_000)
    answer(monkeypatch, "n\n")
    assert not have_own_model("org/name", False)
    captured = capsys.readouterr()
    assert "Download org/name (2 MB) from Hugging Face? [y/N]" in captured.err
    assert "license: apache-2.0" in captured.out
    assert "Nothing was downloaded" in captured.out
    assert not hub.downloaded


@pytest.mark.parametrize("yes", [True, False])
def test_after_the_answer_it_is_downloaded(
    hub: StubHub, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    answer(monkeypatch, "y\n")
    assert have_own_model("org/name", yes)
    assert hub.downloaded[-1] == "model.safetensors"
    hub.asked.clear()
    assert have_own_model("org/name", False)
    assert not hub.asked


def test_ctrl_c_leaves_no_model(
    hub: StubHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.fails["model.safetensors"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        have_own_model("org/name", True)
    assert "the next one gets the files that are missing" in capsys.readouterr().err
    answer(monkeypatch, "n\n")
    assert not have_own_model("org/name", False)


def test_without_a_terminal_nothing_is_asked(hub: StubHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match="Add --yes to download it, or run `hf download org/name`"):
        have_own_model("org/name", False)
    assert not hub.asked


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--model", "org/name"], 2, "no terminal to ask"),
        (["--model", "org/other", "--yes"], 2, "has no such model"),
        (["--model", "/none/at/all"], 2, "neither a folder"),
        (["--model", "org/name", "--device", "tpu"], 2, "there is no such device"),
    ],
)
def test_the_command_ends_with_one_line(
    cli: Cli,
    hub: StubHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    text: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    home = Home.open(tmp_path / "home")
    errors = cli.err("run", "engine", "--home", home.root, "--backend", "torch", *words, code=code)
    assert text in errors
    assert errors.count("\n") == 1


def test_a_dry_run_downloads_nothing(cli: Cli, hub: StubHub, tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    words = ["run", "engine", "--home", str(home.root), "--backend", "torch", "--dry-run"]
    assert "would download org/name" in cli.out(*words, "--model", "org/name")
    assert not hub.downloaded


def test_the_console_asks_before_its_screen(
    hub: StubHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.open(tmp_path / "home")
    answer(monkeypatch, "no\n")
    monkeypatch.setattr(sys, "stdout", TerminalText())
    monkeypatch.setattr("console.app.run_console", lambda options: pytest.fail("it has started"))
    words = ["--home", str(home.root), "--backend", "torch", "--model", "org/name"]
    assert main(words) == 1
    assert hub.asked == ["org/name"]
