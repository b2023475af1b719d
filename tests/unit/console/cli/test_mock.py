"""Flags of the mock user and of the console's process."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from console.backend.mock_process import FLAGS, check_target, mock_args
from console.backend.options import ConsoleOptions
from console.backend.processes import role_args
from console.cli import main, processes
from console.cli.common import settings_of
from console.cli.options import SERVING
from console.cli.tree import CONSOLE, parse
from console.models.datasets import datasets, find_dataset
from core.commands import COMMANDS
from core.runtime.home import Home
from core.settings import load
from engine.torch import packages
from mock.user_requests import MockOptions
from tests.support.checks import present
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText

TARGET = ("--base-url", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (["--rate", "0"], "'--rate': 0.0 is not in the range"),
        (["--updates", "0"], "'--updates': 0 is not in the range"),
        (["--held-out", "1.5"], "'--held-out': 1.5 is not in the range"),
        (["--rate", "1", "--pace", "2"], "exclude each other"),
        (["--columns", "qury=x"], "Did you mean `query`"),
        (["gone.csv"], "there is no dataset `gone.csv`"),
        (["--target", "opencod"], "no such target. Did you mean `opencode` or `openclaw`"),
        (["--target", "gone.yaml"], "there is no such target"),
        (["--dry"], "--dry tries a target file"),
        (["--results", "."], "the results cannot be written"),
        (["--results", "file/x.jsonl"], "the results cannot be written"),
        (["empty.jsonl"], "the dataset has no usable row"),
        (["--pause-sync"], "--pause-sync: the state of the engine is unknown"),
        (["--updates", "1"], "--updates: the state of the engine is unknown"),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_wrong_flags_are_reported(
    cli: Cli, lines: list[str], result: str, dry: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.root)
    (home.root / "file").touch()
    (home.root / "empty.jsonl").touch()
    assert result in cli.refused("run", "mock", *TARGET, *lines, *(["--dry-run"] if dry else []))


def test_a_dry_run_writes_nothing(cli: Cli, home: Home) -> None:
    out = home.root / "new" / "results.jsonl"
    assert "would ask" in cli.out("run", "mock", *TARGET, "--results", out, "--dry-run")
    assert not out.parent.exists()
    assert not list((home.root / "mock").glob("*"))


def test_datasets_are_found_by_name_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = Home.open(tmp_path / "home")
    folder = home.root / "datasets"
    (folder / "saved").mkdir(parents=True)
    (folder / "saved" / "state.json").write_text("{}")
    (folder / "a.csv").write_text("query\nx\n")
    (tmp_path / "b.jsonl").write_text("{}\n")
    (tmp_path / "other.txt").write_text("")
    assert find_dataset(home, "a.csv") == folder / "a.csv"
    assert find_dataset(home, "b.jsonl") == Path("b.jsonl")
    assert find_dataset(home, "").name == "questions.jsonl"
    with pytest.raises(UsageError, match=r"Did you mean `b\.jsonl`"):
        find_dataset(home, "b.json")
    result = [
        (dataset.name, dataset.where, dataset.folder) for dataset in datasets(home.root, tmp_path)
    ]
    assert result[0][1] == "shipped"
    assert set(result[1:]) == {
        ("a.csv", "home", False),
        ("saved", "home", True),
        ("b.jsonl", "here", False),
    }
    assert datasets(tmp_path / "none", tmp_path / "none")[1:] == []


def test_every_argument_of_the_command_has_a_flag() -> None:
    names = {arg.name for arg in COMMANDS["mock.start"].args}
    assert names == {*FLAGS, "dataset"}
    args = {"dataset": "d", "seed": -3, "pause_sync": True, "restart": False, "held_out": 0.2}
    assert mock_args(args) == ["d", "--seed", "-3", "--held-out", "0.2", "--pause-sync"]
    assert mock_args({"target": "http://h:1/v1"}) == ["--base-url", "http://h:1/v1"]
    assert mock_args({"seed": 0, "updates": 0}) == ["--seed", "0", "--updates", "0"]
    assert mock_args({"override": True}) == ["--yes"]
    assert mock_args({"target": "opencode"}) == ["--target", "opencode"]


def test_a_target_is_checked_before_anything_is_started(tmp_path: Path) -> None:
    for fine in ("", "http://h:1/v1", "codex"):
        check_target(fine)
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: command\ncomand: x\n")
    with pytest.raises(UsageError, match="Did you mean `command`"):
        check_target(str(bad))


@pytest.mark.parametrize(
    ("flags", "url", "key", "turns"),
    [
        ([], "http://file/v1", "file-secret", 3),
        (["--user-url", "http://flag/v1", "--user-model", "f"], "http://flag/v1", "", 6),
    ],
)
def test_a_target_file_names_the_model_that_plays_the_user(
    cli: Cli,
    flags: list[str],
    url: str,
    key: str,
    turns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its key is sent to its own address alone, not to that of a flag."""
    monkeypatch.setenv("AJET_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("FILE_KEY", "file-secret")
    target = tmp_path / "app.yaml"
    target.write_text(
        "kind: fake\nuser:\n  url: http://file/v1\n  model: actor\n  key_env: FILE_KEY\n"
        "  turns: 3\n  temperature: 0.5\n  seed: 9\n"
    )
    runs: list[MockOptions] = []
    monkeypatch.setattr("mock.user_requests.run", lambda options, **_: runs.append(options) or 0)
    cli("run", "mock", *TARGET, "--target", target, *flags)
    user = present(runs[0].user)
    assert (user.url, user.key, user.turns, user.temperature) == (
        url,
        key,
        turns,
        1.0 if "--user-url" in flags else 0.5,
    )
    assert user.seed == (None if "--user-url" in flags else 9)


Start = Callable[..., list[ConsoleOptions]]


@pytest.fixture
def start(home: Home, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start the console with these words; return the options it would run with."""
    options: list[ConsoleOptions] = []

    def run(one: ConsoleOptions) -> int:
        options.append(one)
        return 0

    def started(*words: str) -> list[ConsoleOptions]:
        for name in ("stdin", "stdout"):
            monkeypatch.setattr(sys, name, TerminalText())
        main(["--home", str(home.root), *words])
        return options

    monkeypatch.setattr("console.app.run_console", run)
    monkeypatch.setattr(processes, "_have_model", lambda *_: True)
    monkeypatch.setattr(packages, "missing", lambda gguf=False: [])
    return started


_URL = ("--swarm-url", "http://gpu:1")


_ATTACH = ("--attach", "http://127.0.0.1:8000")


_UPSTREAM = ("--upstream", "http://x:1")


PROXY_OPTIONS = {
    "--swarm-url": _URL,
    "--upstream": _UPSTREAM,
    "--upstream-model": ("--upstream-model", "m", *_UPSTREAM),
    "--upstream-key-file": ("--upstream-key-file", "/k", *_UPSTREAM),
    "--host": ("--host", "127.0.0.2", *_URL),
    "--port": ("--port", "8123", *_URL),
    "--api-key-file": ("--api-key-file", "/k", *_URL),
    "--hooks": ("--hooks", "/h", *_URL),
    "--rewards": ("--rewards", "/r.yaml", *_URL),
    "--watch-only": ("--watch-only", *_URL),
    "--tls-cert": ("--tls-cert", "/c", *_URL),
    "--tls-key": ("--tls-key", "/c", *_URL),
}
"""Option of the proxy -> a command line of the console with it."""


OWN_OPTIONS: dict[str, tuple[tuple[str, ...], Callable[[ConsoleOptions], bool]]] = {
    "--backend": (("--backend", "numpy"), lambda one: one.settings.engine.backend == "numpy"),
    "--model": (
        ("--backend", "torch", "--model", "smollm2"),
        lambda one: one.settings.engine.model == "smollm2",
    ),
    "--attach": (_ATTACH, lambda one: one.attach == "http://127.0.0.1:8000"),
    "--token-file": (("--token-file", "/t", *_ATTACH), lambda one: one.token_file == Path("/t")),
    "--theme": (("--theme", "light", *_URL), lambda one: one.settings.console.theme == "light"),
    "--no-engine": (("--no-engine",), lambda one: not one.start_engine),
    "--read-only": (("--read-only", *_URL), lambda one: one.read_only),
}
"""Option of the console itself -> a command line with it, and whether the console has it."""


def test_the_options_below_are_all_options_of_the_console() -> None:
    """`--home`, `--keys` (which prints) and the options that print do not reach a process."""
    flags = {param.opts[0] for param in CONSOLE} - {"--keys"}
    assert flags == {*PROXY_OPTIONS, *OWN_OPTIONS}
    assert set(PROXY_OPTIONS) == {param.opts[0] for param in SERVING}


@pytest.mark.parametrize("flag", PROXY_OPTIONS)
def test_each_option_of_the_proxy_reaches_the_process(flag: str, start: Start) -> None:
    words = PROXY_OPTIONS[flag]
    (options,) = start(*words)
    assert flag in options.proxy_flags
    args = role_args("proxy", options.settings)
    assert flag in args
    if flag != "--watch-only":
        value = words[words.index(flag) + 1]
        assert args[args.index(flag) + 1].removeprefix("swarm=") == value


@pytest.mark.parametrize("flag", OWN_OPTIONS)
def test_each_option_of_the_console_itself_is_used(flag: str, start: Start) -> None:
    words, used = OWN_OPTIONS[flag]
    (options,) = start(*words)
    assert used(options)


@pytest.mark.parametrize("flag", [option for option in PROXY_OPTIONS if option != "--tls-cert"])
def test_an_option_of_the_proxy_is_refused_with_attach(
    flag: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(*PROXY_OPTIONS[flag], *_ATTACH) == []
    err = capsys.readouterr().err
    assert "--attach" in err
    assert flag in err


def test_a_token_file_is_refused_without_attach(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start("--token-file", "/t", *_URL) == []
    assert "--token-file applies only with --attach" in capsys.readouterr().err


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


def test_a_child_gets_the_upstream_as_a_flag_but_never_its_key() -> None:
    result = {"upstream.url": "http://x:1", "upstream.model": "m", "upstream.key_file": "/k"}
    args = role_args("proxy", load(None, {}, {**result, "upstream.key": "secret"}))
    value = ["--upstream", "http://x:1", "--upstream-model", "m", "--upstream-key-file", "/k"]
    assert args[-6:] == value
    assert "--swarm-url" not in args
    assert "secret" not in args
    assert parse(["run", "proxy", *args]).upstream == "http://x:1"


def test_the_upstream_is_the_only_server() -> None:
    both = {"upstream": {"url": "http://x:1"}, "swarm_url": {"a": "http://y:2"}}
    settings = load(None, {"AJET_CONSOLE__UPSTREAM__KEY": "k"}, both)
    assert (settings.servers(), settings.upstream.key) == ({"upstream": "http://x:1"}, "k")
    assert settings.upstream.temperature is None, "the request's own"
    assert load(None, {}, {"upstream.temperature": 0.3}).upstream.temperature == 0.3


def test_upstream_and_swarm_url_exclude_each_other(home: Home) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        settings_of(home, ["http://y:2"], upstream__url="http://x:1")


def test_a_swarm_url_flag_overrides_the_upstream_of_the_file(home: Home) -> None:
    home.config.write_text("upstream:\n  url: http://x:1\n")
    assert settings_of(home).servers() == {"upstream": "http://x:1"}
    assert settings_of(home, ["http://y:2"]).servers() == {"swarm": "http://y:2"}
