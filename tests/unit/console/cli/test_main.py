"""The command line: what is understood, what is refused, and how."""

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import console.cli
from ajet_swarm.common.errors import AjetError, UsageError
from console.cli import main, parse
from console.cli.common import confirm, say, say_json
from console.cli.parser import run_console
from console.cli.votes import rating_of
from core.commands import validate
from core.commands.plan_groups import find_group
from core.runtime.home import Home, Role
from core.state import Group, State
from tests.support.commands.cli import Cli, missing

_ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("flag", ["", "engine", "proxy", "mock", "replay", "status"])
def test_each_help_has_an_example(cli: Cli, flag: str) -> None:
    assert f"Example: ajet-console {flag}" in cli.out(*([flag] if flag else []), "--help")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_terminal_cannot_show_is_replaced(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(args: argparse.Namespace) -> int:
        say("caf\xe9 \u25cf")
        say_json({"answer": "caf\xe9 \u25cf \U0001f600"})
        return 0

    monkeypatch.setattr(
        console.cli, "parse", lambda _: argparse.Namespace(command="", handler=handler)
    )
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    assert main(["status"]) == 0
    text, json_text = written.getvalue().decode(encoding).split("\n", 1)
    assert text == {"ascii": "caf? ?", "latin-1": "caf\xe9 ?"}.get(encoding, "caf\xe9 \u25cf")
    assert json.loads(json_text) == {"answer": "caf\xe9 \u25cf \U0001f600"}


def test_version(cli: Cli) -> None:
    assert cli.out("--version").startswith("ajet-console ")


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["--nonsense"],
        ["status", "--nonsense"],
        ["mode", "sometimes"],
        ["proxy", "--port", "many"],
        ["abort"],
        ["rate"],
        ["rate", "g1"],
        ["rate", "g1", "0"],
        ["rate", "g1", "1", "1"],
        ["rate", "g1", "1", "--tie"],
        ["rate", "g1", "1", "--scores", "1", "0"],
        ["rate", "g1", "--tie", "--bad"],
        ["mock", "--concurrency", "0"],
        ["mock", "--base-url", "localhost"],
        ["proxy", "--port", "99999"],
        ["proxy", "--swarm-url", "nonsense"],
        ["--swarm-url", "ftp://x"],
        ["--attach", "localhost:8000"],
        ["--port", "8001", "status"],
        ["--port", "0", "status"],
        ["accept", "g1", "--url", "localhost:8000"],
        ["accept", "g1", "--url", "http://127.0.0.1:9", "--token-file", "/no/such/file"],
        ["engine-start", "--swarm-url", "a=http://127.0.0.1:9", "--server", "b"],
        ["engine", "--host", "0.0.0.0"],
    ],
    ids=" ".join,
)
def test_wrong_use_exits_with_2_and_one_message(cli: Cli, argv: list[str], home: Home) -> None:
    captured = cli.run(*argv, code=2)
    assert captured.out == ""
    assert captured.err.startswith("ajet-console")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["accept", "g1"],
        ["rate", "g1", "2"],
        ["mode", "hold"],
        ["abort", "g1", "--yes"],
        ["mock"],
        ["mock-pause"],
        ["engine-start", "--swarm-url", "http://127.0.0.1:9"],
        ["engine-stop", "--yes", "--swarm-url", "http://127.0.0.1:9"],
        ["status", "--url", "http://127.0.0.1:9"],
    ],
    ids=" ".join,
)
def test_without_a_proxy_the_exit_code_is_1_with_advice(
    cli: Cli, argv: list[str], home: Home
) -> None:
    assert cli.failed(*argv).startswith("ajet-console: ")


@pytest.mark.parametrize(
    ("argv", "suggestion"),
    [
        (["mode", "answer-first"], "Did you mean `answer_first`?"),
        (["statsu"], "Did you mean `status`?"),
        (["replay", "--theme", "drak"], "Did you mean `dark`?"),
        (["status", "--jsno"], "Did you mean `--json`? See `ajet-console status --help`"),
        (["checkpoints", "prune", "3", "--al"], "Did you mean `--all`?"),
        (["--them=dark"], "Did you mean `--theme`? See `ajet-console --help`"),
        (["replay", "--screen", "reqests"], "Did you mean `requests`?"),
    ],
    ids=str,
)
def test_a_misspelled_value_gets_a_suggestion(
    cli: Cli, argv: list[str], suggestion: str, home: Home
) -> None:
    assert suggestion in cli.refused(*argv)


@pytest.mark.parametrize(
    ("inner", "result"),
    [
        ((ValueError("x"), AjetError("the engine is gone")), "ajet-console: the engine is gone\n"),
        ((ValueError("x"),), "ajet-console: internal error, ValueError: x. AJET"),
    ],
)
def test_an_error_of_concurrent_work_is_reported_without_its_group(
    cli: Cli, inner: tuple[Exception, ...], result: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> int:
        raise ExceptionGroup("unhandled", [ExceptionGroup("deeper", inner)])

    monkeypatch.setattr("console.cli.status.status", failing)
    assert cli.failed("status").startswith(result)


def test_a_misspelled_command_gets_a_suggestion_instead_of_the_list(cli: Cli) -> None:
    assert "choose from" not in cli.refused("statsu")
    assert "choose from" in cli.refused("qqqq")


@pytest.mark.parametrize(
    "argv",
    [["--theme", "light", "replay"], ["replay", "--theme", "light"]],
    ids=" ".join,
)
def test_replay_takes_its_theme_before_and_after_the_verb(argv: list[str]) -> None:
    assert parse(argv).theme == "light"
    assert parse(["--theme", "dark", "replay", "--theme", "ansi"]).theme == "ansi"


def test_an_error_for_a_read_only_home_names_the_home(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in cli.failed("--home", tmp_path / "file", "status")


def test_a_reading_command_creates_no_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in (["status"], ["--read-only"], ["mode"], ["clients", "pi"]):
        main(["--home", str(tmp_path / "tpyo"), *verb])
        assert not list(tmp_path.iterdir())
    assert "there is no home here" in capsys.readouterr().err


def test_home_is_accepted_before_and_after_the_command(tmp_path: Path) -> None:
    before = parse(["--home", str(tmp_path), "status"])
    after = parse(["status", "--home", str(tmp_path)])
    assert before.home == after.home == tmp_path
    assert parse(["status"]).home is None


def test_without_a_command_the_console_runs() -> None:
    value = parse(["--swarm-url", "a=http://x:1", "--swarm-url", "b=http://y:1", "--no-engine"])
    assert value.handler is run_console
    assert value.console_swarm_url == ["a=http://x:1", "b=http://y:1"]
    assert value.console_port is None
    assert not value.console_read_only


def _rating(*argv: str) -> tuple[str, dict[str, Any]]:
    name, args = rating_of(parse(["rate", "g1", *argv]))
    return name, validate(name, args)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["3"], {"rating": "best", "order": (2,)}),
        (["3", "1", "2", "4"], {"rating": "ranking", "order": (2, 0, 1, 3)}),
        (["--scores", "1", "0.5", "0"], {"rating": "scores", "scores": (1.0, 0.5, 0.0)}),
        (["--tie"], {"rating": "tie"}),
        (["--bad"], {"rating": "bad"}),
        (["--skip"], {"rating": "skip"}),
    ],
)
def test_candidates_of_a_rating_are_numbered_from_1(
    argv: list[str], expected: dict[str, Any]
) -> None:
    assert _rating(*argv) == ("group.rate", {"group_id": "g1", **expected})


def test_a_rating_can_be_removed() -> None:
    assert _rating("--undo") == ("group.unrate", {"group_id": "g1"})


def test_a_destructive_command_needs_confirmation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirm("Stop it", "all", yes=True)
    with pytest.raises(UsageError, match=r"Stop it: .* lose all\. Add --yes"):
        confirm("Stop it", "all", yes=False)
    monkeypatch.setattr("sys.stdin", _Terminal("y\n"))
    assert confirm("Stop it", "all", yes=False)
    monkeypatch.setattr("sys.stdin", _Terminal("\n"))
    assert not confirm("Stop it", "all", yes=False)
    assert "Stop it? It loses all. [y/N]" in capsys.readouterr().err


class _Terminal:
    def __init__(self, line: str) -> None:
        self.line = line

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.line


def test_a_group_is_found_by_its_first_characters() -> None:
    groups = {
        name: Group(
            group_id=name, request_id="r", server="s", task_id="t", n=4, query="q", opened_at=0.0
        )
        for name in ("abc1", "abc2", "xyz")
    }
    state = State(groups=groups)
    assert find_group(state, "x").group_id == "xyz"
    with pytest.raises(AjetError, match="there is no group `nope`"):
        find_group(state, "nope")
    with pytest.raises(AjetError, match="2 groups begin with"):
        find_group(state, "abc")


def test_status_works_without_any_process(cli: Cli, home: Home) -> None:
    shown = cli.out("status", "--swarm-url", "gpu=http://127.0.0.1:9")
    assert not missing(shown, "proxy    not running", "gpu  http://127.0.0.1:9  CANNOT_CONNECT")
    data = cli.json("status", "--swarm-url", "gpu=http://127.0.0.1:9")
    assert data["proxy"] is None
    assert (data["servers"][0]["name"], data["servers"][0]["claimed"]) == ("gpu", None)
    assert "no connection" in data["servers"][0]["error"]


def test_status_finds_a_proxy_that_does_not_answer(
    cli: Cli, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with Role(home, "proxy") as role:
        role.publish(url="http://127.0.0.1:9")
        cli("status", "--json")
    assert "does not answer" in json.loads(capsys.readouterr().out)["proxy"]["error"]


def test_an_interrupt_is_130_and_quiet(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("console.cli.status.status", interrupted)
    assert cli.err("status", code=130) == ""


def test_an_internal_error_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(args: argparse.Namespace) -> int:
        raise KeyError("x")

    monkeypatch.setattr("console.cli.status.status", faulty)
    monkeypatch.delenv("AJET_CONSOLE_DEBUG", raising=False)
    error_output = cli.failed("status")
    assert error_output.startswith("ajet-console: internal error, KeyError")
    assert error_output.count("\n") == 1


def test_an_unreachable_engine_is_reported_with_advice(cli: Cli, home: Home) -> None:
    shown = cli.failed("engine-start", "--swarm-url", "http://127.0.0.1:9")
    assert not missing(shown, "no engine answers", "`ajet-console engine`", "--swarm-url")


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow
def test_importing_the_command_line_imports_no_heavy_module() -> None:
    heavy = ["textual", "httpx", "fastapi", "uvicorn", "aiohttp", "numpy", "yaml", "asyncio"]
    loaded = _python(f"import console.cli, sys; print([m for m in {heavy!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.slow
def test_the_mock_user_needs_neither_textual_nor_numpy_nor_fastapi() -> None:
    heavy = ["textual", "fastapi", "aiohttp", "numpy", "proxy", "engine"]
    loaded = _python(
        f"import mock.user_requests, sys; print([m for m in {heavy!r} if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


@pytest.mark.slow
def test_the_question_before_a_run_without_training_needs_no_screen() -> None:
    code = "import console.models.progress.pause, sys; print('textual' in sys.modules)"
    assert _python(code).strip() == "False"


@pytest.mark.slow
def test_the_supervisor_needs_no_screen() -> None:
    heavy = ["textual", "httpx", "fastapi", "aiohttp", "numpy", "proxy", "engine", "mock"]
    loaded = _python(
        f"import console.backend.supervisor, sys; print([m for m in {heavy!r} if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


@pytest.mark.slow
def test_python_m_console_is_the_command_line() -> None:
    assert console.cli.main is main
    done = subprocess.run(
        [sys.executable, "-m", "console", "rate"], cwd=_ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "GROUP" in done.stderr
