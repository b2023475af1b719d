"""The engine's backend and model: options, what is missing, the question before a download."""

import io
import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import engine.main as engine_main
from ajet_swarm.common.errors import AjetError, UsageError
from console.cli import main, processes
from console.cli.engine.backend import (
    check_backend,
    have_own_model,
    have_smollm2,
    model_flags,
    torch_model,
)
from console.cli.tree import parse
from core.runtime.home import Home
from core.settings import EngineSettings, load
from engine.main import EngineOptions
from engine.torch import packages
from engine.torch.files import smollm2
from engine.torch.files.check import ModelLoadError
from engine.torch.files.smollm2 import ModelError, SmolFiles
from engine.torch.options import TorchOptions
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText
from tests.unit.engine.torch.files import stub_hub
from tests.unit.engine.torch.files.model_folders import make_folder
from tests.unit.engine.torch.files.stub_hub import StubHub


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EngineOptions]:
    """Options of the engines that would have run; packages, device and model are there."""
    options: list[EngineOptions] = []

    def run(chosen: EngineOptions) -> int:
        options.append(chosen)
        return 0

    monkeypatch.setattr(engine_main, "run", run)
    monkeypatch.setattr("core.runtime.log_format.setup", lambda *args: None)
    monkeypatch.setattr(packages, "missing", lambda gguf=False: [])
    monkeypatch.setattr(processes, "have_own_model", lambda model, yes: True)
    monkeypatch.setattr(processes, "check_device_present", lambda *of: None)
    return options


@pytest.fixture
def engine(home: Home, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "run", "engine")


CONFIGURED = "engine: {backend: torch, model: org/name}\n"


@pytest.mark.parametrize(
    ("config", "line", "torch"),
    [
        ("", "", None),  # numpy trains the shipped policy
        ("", "--backend torch", TorchOptions()),  # the model is that of the job
        (
            "",
            "--backend torch --model Qwen/Qwen3-0.6B --device cuda:1 --dtype bfloat16 --lora 8"
            " --context 8192 --max-memory 20",
            TorchOptions(
                model="Qwen/Qwen3-0.6B",
                device="cuda:1",
                dtype="bfloat16",
                lora_rank=8,
                context=8192,
                max_memory=20.0,
            ),
        ),
        (CONFIGURED, "", TorchOptions(model="org/name")),
        (CONFIGURED, "--full", TorchOptions(model="org/name", full=True)),
        (CONFIGURED, "--lora 8", TorchOptions(model="org/name", lora_rank=8)),
        (CONFIGURED, "--backend numpy --model tiny", None),  # settings of torch have no effect
    ],
)
def test_options_and_settings_reach_the_engine(
    engine: Cli,
    home: Home,
    started: list[EngineOptions],
    config: str,
    line: str,
    torch: TorchOptions | None,
) -> None:
    if config:
        home.config.write_text(config)
    engine(*line.split())
    assert started[0].torch == torch
    assert torch or started[0].model == "tiny"


def test_smollm2_on_torch_is_its_file_after_the_same_question(
    engine: Cli, home: Home, started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(""))
    engine("--backend", "torch", "--model", "smollm2", code=2)
    files = SmolFiles(home)
    files.folder.mkdir(parents=True)
    files.model.write_bytes(b"as fetched")
    engine("--backend", "torch", "--model", "smollm2")
    (options,) = started
    assert options.torch is not None
    assert (options.model, options.torch.model) == ("smollm2", str(files.model))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--model", "Qwen/Qwen3-0.6B"], "add --backend torch"),
        (["--model", "tinny"], "Did you mean `tiny`?"),
        (["--model", "smollm2"], "add --backend torch"),
        (["--device", "cuda"], "--device: only the torch backend has this. Add --backend torch"),
        (["--lora", "8", "--context", "9"], "--lora, --context: only the torch backend"),
        (["--full"], "--full: only the torch backend"),
        (["--backend", "torch", "--full", "--lora", "8"], "--full and --lora exclude each other"),
        (["--backend", "torch", "--lora", "0"], "'--lora': 0 is not in the range"),
        (["--backend", "torch", "--max-memory", "-1"], "'--max-memory': -1.0 is not in the range"),
        (["--backend", "torch", "--model", "tiny"], "`tiny` is a policy of the numpy backend"),
        (["--backend", "torch", "--dtype", "int8"], "--dtype"),
        (["--backend", "cupy"], "--backend"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line(
    engine: Cli, started: list[EngineOptions], words: list[str], text: str
) -> None:
    errors = engine.refused(*words)
    assert text in errors
    assert errors.count("\n") == 1
    assert not started


def test_a_missing_package_is_reported_before_anything_starts(
    engine: Cli, started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def missing(gguf: bool = False) -> list[str]:
        asked.append(gguf)
        return ["torch is missing"]

    monkeypatch.setattr(packages, "missing", missing)
    engine("--backend", "torch", "--model", "/m/x.gguf", code=1)
    errors = engine.failed("--backend", "torch", "--model", "org/name")
    assert (errors.count("pip install 'ajet-console[torch]'"), asked) == (2, [True, False])
    assert not started


def test_a_model_on_disk_is_absolute(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    args = parse(["run", "engine", "--backend", "torch", "--model", "./model"])
    assert model_flags(args.backend, args.model)["engine__model"] == str(tmp_path / "model")
    assert torch_model(home, EngineSettings(backend="torch", model="model")) == str(
        tmp_path / "model"
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"engine.model": "large"}, "add --backend torch"),
        ({"engine.model": " ", "engine.backend": "torch"}, "`engine.model` is empty"),
        ({"engine.backend": "tourch"}, "Did you mean `torch`?"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(settings: Mapping[str, Any], text: str) -> None:
    with pytest.raises(AjetError) as refused:
        load(None, {}, settings)
    assert text in str(refused.value)


def console(home: Home, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[Any]:
    """Start the console; return the options that it would run with."""
    options: list[Any] = []

    def run(chosen: Any) -> int:
        options.append(chosen)
        return 0

    monkeypatch.setattr("console.app.run_console", run)
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, TerminalText())
    assert main(["--home", str(home.root), *words]) in (0, 1, 2)
    return options


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--backend torch --model org/name", "pytorch.org"),
        (
            "--swarm-url http://127.0.0.1:9 --backend torch --model smollm2",
            "the job names the model of another server",
        ),
    ],
)
def test_the_console_refuses_what_it_cannot_start_before_its_screen(
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    error: str,
) -> None:
    monkeypatch.setattr(packages, "missing", lambda gguf=False: ["torch is missing"])
    assert console(home, monkeypatch, *line.split()) == []
    assert error in capsys.readouterr().err


def test_numpy_needs_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "missing", lambda gguf=False: ["torch is missing"])
    check_backend(EngineSettings(), model=None)


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
    assert (main(words), hub.asked) == (1, ["org/name"])


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


def test_size_disk_and_memory_are_shown_before_the_confirmation(
    home: Home,
    pips: list[Sequence[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", TerminalText("n\n"))
    assert not have_smollm2(home, yes=False)
    captured = capsys.readouterr()
    assert not missing(
        captured.out, "93 MB", "98 MB", "59 MB", "GB", "Apache-2.0", "Nothing was downloaded"
    )
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
