"""The console's process: its options, and what follows the setup that its first start offers."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console.backend.options import ConsoleOptions
from console.backend.processes import role_args
from console.cli import main, processes
from console.cli.options import SERVING
from console.cli.tree import CONSOLE, parse
from core.runtime.home import Home
from engine.torch import packages
from tests.support.pty.text import TerminalText

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


@pytest.mark.parametrize("flag", [one for one in PROXY_OPTIONS if one != "--tls-cert"])
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
