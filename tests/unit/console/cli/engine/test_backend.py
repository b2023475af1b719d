"""The options of the engine's backend: what they set, what excludes what, what is missing."""

import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import engine.main as engine_main
from ajet_swarm.common.errors import AjetError
from console.cli import main, processes
from console.cli.engine.backend import check_backend, engine_flags, torch_model
from console.cli.tree import parse
from core.runtime.home import Home
from core.settings import EngineSettings, load
from engine.main import EngineOptions
from engine.torch import packages
from engine.torch.files.smollm2 import SmolFiles
from engine.torch.options import TorchOptions
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EngineOptions]:
    """Options of the engines that would have run; packages, device and model are there."""
    options: list[EngineOptions] = []

    def run(one: EngineOptions) -> int:
        options.append(one)
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


def test_every_option_reaches_the_engine(engine: Cli, started: list[EngineOptions]) -> None:
    engine(
        *("--backend", "torch", "--model", "Qwen/Qwen3-0.6B", "--device", "cuda:1"),
        *("--dtype", "bfloat16", "--lora", "8", "--context", "8192", "--max-memory", "20"),
    )
    assert started[0].torch == TorchOptions(
        model="Qwen/Qwen3-0.6B",
        device="cuda:1",
        dtype="bfloat16",
        lora_rank=8,
        context=8192,
        max_memory=20.0,
    )


def test_without_options_numpy_trains_the_shipped_policy(
    engine: Cli, started: list[EngineOptions]
) -> None:
    engine()
    assert (started[0].model, started[0].torch) == ("tiny", None)


def test_torch_without_a_model_uses_that_of_the_job(
    engine: Cli, started: list[EngineOptions]
) -> None:
    engine("--backend", "torch")
    assert started[0].torch == TorchOptions()


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
    assert errors.count("pip install 'ajet-console[torch]'") == 2
    assert asked == [True, False]
    assert not started


@pytest.mark.parametrize(
    ("words", "lora", "full"),
    [(["--full"], None, True), (["--lora", "8"], 8, False), ([], None, False)],
)
def test_a_flag_chooses_the_kind_of_training(
    engine: Cli,
    home: Home,
    started: list[EngineOptions],
    words: list[str],
    lora: int | None,
    full: bool,
) -> None:
    home.config.write_text("engine: {backend: torch, model: org/name}\n")
    engine(*words)
    options = started[0].torch
    assert options is not None
    assert (options.lora_rank, options.full) == (lora, full)


def test_settings_of_torch_have_no_effect_on_numpy(
    engine: Cli, home: Home, started: list[EngineOptions]
) -> None:
    home.config.write_text("engine: {backend: torch, model: org/name}\n")
    engine("--backend", "numpy", "--model", "tiny")
    assert started[0].torch is None


def test_a_model_on_disk_is_absolute(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    args = parse(["run", "engine", "--backend", "torch", "--model", "./model"])
    assert engine_flags(args)["engine__model"] == str(tmp_path / "model")
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

    def run(one: Any) -> int:
        options.append(one)
        return 0

    monkeypatch.setattr("console.app.run_console", run)
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(sys, name, TerminalText())
    assert main(["--home", str(home.root), *words]) in (0, 1, 2)
    return options


@pytest.mark.slow
def test_the_console_takes_backend_and_model(
    home: Home, started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    (options,) = console(home, monkeypatch, "--backend", "torch", "--model", "org/name")
    assert (options.settings.engine.backend, options.settings.engine.model) == ("torch", "org/name")


@pytest.mark.slow
def test_the_console_checks_the_packages_first(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "missing", lambda gguf=False: ["torch is missing"])
    assert console(home, monkeypatch, "--backend", "torch", "--model", "org/name") == []
    assert "pytorch.org" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_for_another_server_is_wrong_use(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--swarm-url", "http://127.0.0.1:9", "--backend", "torch", "--model", "smollm2"]
    assert console(home, monkeypatch, *words) == []
    assert "the job names the model of another server" in capsys.readouterr().err


def test_numpy_needs_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "missing", lambda gguf=False: ["torch is missing"])
    check_backend(EngineSettings(), model=None)
