"""The command line: what it understands and refuses, its envelope and its examples."""

import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import console.cli
from ajet_swarm.common.errors import AjetError, UsageError
from console.cli import main
from console.cli.groups import rating_of
from console.cli.options import Args
from console.cli.output import confirm, say, say_json
from console.cli.registry import Verb, verbs
from console.cli.tree import parse, run_console
from console.session import filters
from core.commands import validate
from core.commands.plan_groups import find_group
from core.runtime.home import Home, Role
from proxy.rewards.model.file import default_model
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText
from tests.support.sample import group_events, state_of

_ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("verb", ["", "run engine", "run proxy", "run mock", "status"])
def test_each_help_has_an_example(cli: Cli, verb: str) -> None:
    assert f"Example: ajet-console {verb}" in cli.out(*verb.split(), "--help")


@pytest.mark.parametrize(
    ("line", "now"),
    [
        ("engine-start --yes", "engine start"),
        ("engine --port 10086", "run engine"),
        ("mock questions.jsonl", "run mock"),
        ("proxy", "run proxy"),
        ("tokens 3f5bc3c9", "engine tokens"),
        ("unrate 3f2a", "group unrate"),
        ("pin 3f2a", "group pin"),
        ("token list", "tokens"),
        ("reward-test", "rewards test"),
        ("replay", "journal replay"),
    ],
)
def test_a_former_name_answers_with_the_present_one(cli: Cli, line: str, now: str) -> None:
    assert f": now: {now}. See" in cli.refused(*line.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_terminal_cannot_show_is_replaced(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(args: Args) -> int:
        say("caf\xe9 \u25cf")
        say_json({"answer": "caf\xe9 \u25cf \U0001f600"})
        return 0

    monkeypatch.setattr(console.cli, "parse", lambda _: Args(words="", handler=handler))
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
        ["rating", "mode", "sometimes"],
        ["run", "proxy", "--port", "many"],
        ["abort"],
        ["rate"],
        ["rate", "g1"],
        ["rate", "g1", "0"],
        ["rate", "g1", "1", "1"],
        ["rate", "g1", "1", "--tie"],
        ["rate", "g1", "1", "--scores", "1", "0"],
        ["rate", "g1", "--tie", "--bad"],
        ["run", "mock", "--concurrency", "0"],
        ["run", "mock", "--base-url", "localhost"],
        ["run", "proxy", "--port", "99999"],
        ["run", "proxy", "--swarm-url", "nonsense"],
        ["--swarm-url", "ftp://x"],
        ["--attach", "localhost:8000"],
        ["--port", "8001", "status"],
        ["--port", "0", "status"],
        ["accept", "g1", "--url", "localhost:8000"],
        ["accept", "g1", "--url", "http://127.0.0.1:9", "--token-file", "/no/such/file"],
        ["engine", "start", "--swarm-url", "a=http://127.0.0.1:9", "--server", "b"],
        ["run", "engine", "--host", "0.0.0.0"],
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
        ["rating", "mode", "hold"],
        ["abort", "g1", "--yes"],
        ["run", "mock"],
        ["mock", "pause"],
        ["engine", "start", "--swarm-url", "http://127.0.0.1:9"],
        ["engine", "stop", "--yes", "--swarm-url", "http://127.0.0.1:9"],
        ["status", "--url", "http://127.0.0.1:9"],
    ],
    ids=" ".join,
)
def test_without_a_proxy_the_exit_code_is_1_with_advice(
    cli: Cli, argv: list[str], home: Home
) -> None:
    shown = cli.failed(*argv)
    assert shown.startswith("ajet-console: ")
    if argv[0] == "engine":
        assert not missing(shown, "no engine answers", "`ajet-console run engine`", "--swarm-url")


@pytest.mark.parametrize(
    ("argv", "suggestion"),
    [
        (["rating", "mode", "answer-first"], "Did you mean `answer_first`?"),
        (["statsu"], "Did you mean `status`?"),
        (["journal", "replay", "--theme", "drak"], "Did you mean `dark`?"),
        (["status", "--jsno"], "Did you mean `--json`? See `ajet-console status --help`"),
        (["checkpoints", "prune", "3", "--al"], "Did you mean `--all`?"),
        (["--them=dark"], "Did you mean `--theme`? See `ajet-console --help`"),
        (["journal", "replay", "--screen", "reqests"], "Did you mean `requests`?"),
    ],
    ids=str,
)
def test_a_misspelled_value_gets_a_suggestion(
    cli: Cli, argv: list[str], suggestion: str, home: Home
) -> None:
    assert suggestion in cli.refused(*argv)


@pytest.mark.parametrize(
    ("error", "code", "result"),
    [
        ((ValueError("x"), AjetError("the engine is gone")), 1, "ajet-console: the engine is gone"),
        ((ValueError("x"),), 1, "ajet-console: internal error, ValueError: x. AJET"),
        (KeyError("x"), 1, "ajet-console: internal error, KeyError"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line_also_when_concurrent_work_grouped_it(
    cli: Cli,
    error: BaseException | tuple[Exception, ...],
    code: int,
    result: str,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(_: object) -> int:
        if isinstance(error, tuple):
            raise ExceptionGroup("unhandled", [ExceptionGroup("deeper", error)])
        raise error

    monkeypatch.setattr("console.cli.status.existing_home", failing)
    shown = cli.err("status", code=code)
    assert shown.startswith(result)
    assert shown.count("\n") == bool(result)


def test_a_misspelled_command_gets_a_suggestion_instead_of_the_list(cli: Cli) -> None:
    assert "Choose from" not in cli.refused("statsu")
    assert "Choose from" in cli.refused("qqqq")


def test_replay_takes_its_theme_before_and_after_the_verb() -> None:
    assert parse(["--theme", "light", "journal", "replay"]).theme == "light"
    assert parse(["journal", "replay", "--theme", "light"]).theme == "light"
    assert parse(["--theme", "dark", "journal", "replay", "--theme", "ansi"]).theme == "ansi"


def test_an_error_for_a_read_only_home_names_the_home(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in cli.failed("--home", tmp_path / "file", "status")


def test_a_reading_command_creates_no_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in (["status"], ["--read-only"], ["rating", "mode"], ["clients", "pi"]):
        main(["--home", str(tmp_path / "tpyo"), *verb])
        assert not list(tmp_path.iterdir())
    assert "there is no home here" in capsys.readouterr().err


def test_without_a_command_the_console_runs() -> None:
    value = parse(["--swarm-url", "a=http://x:1", "--swarm-url", "b=http://y:1", "--no-engine"])
    assert value.handler is run_console
    assert value.swarm_url == ("a=http://x:1", "b=http://y:1")
    assert value.port is None
    assert not value.read_only


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["3"], {"rating": "best", "order": (2,)}),
        (["3", "1", "2", "4"], {"rating": "ranking", "order": (2, 0, 1, 3)}),
        (["--scores", "1", "0.5", "0"], {"rating": "scores", "scores": (1.0, 0.5, 0.0)}),
        (["--tie"], {"rating": "tie"}),
        (["--bad"], {"rating": "bad"}),
        (["--skip"], {"rating": "skip"}),
        (["--undo"], {}),
    ],
)
def test_candidates_of_a_rating_are_numbered_from_1(
    argv: list[str], expected: dict[str, Any]
) -> None:
    name, args = rating_of(parse(["rate", "g1", *argv]))
    assert name == ("group.rate" if expected else "group.unrate")
    assert validate(name, args) == {"group_id": "g1", **expected}


def test_a_destructive_command_needs_confirmation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirm("Stop it", ["It loses all."], yes=True)
    with pytest.raises(UsageError, match=r"Stop it: .* It loses all\. Add --yes"):
        confirm("Stop it", ["It loses all."])
    for answer, agrees in (("y\n", True), ("\n", False)):
        monkeypatch.setattr("sys.stdin", TerminalText(answer))
        assert confirm("Stop it", ["It loses all."]) is agrees
    assert "Stop it? It loses all. [y/N]" in capsys.readouterr().err


def test_a_group_is_found_by_its_first_characters() -> None:
    state = state_of(*group_events(1), *group_events(2), *group_events(10))
    assert find_group(state, "g001").group_id == "g0010"
    with pytest.raises(AjetError, match="there is no group `nope`"):
        find_group(state, "nope")
    with pytest.raises(AjetError, match="2 groups begin with"):
        find_group(state, "g000")


def test_status_works_without_any_process(cli: Cli, home: Home) -> None:
    shown = cli.out("status", "--swarm-url", "gpu=http://127.0.0.1:9")
    assert not missing(shown, "proxy    not running", "gpu  http://127.0.0.1:9  CANNOT_CONNECT")
    data = cli.json("status", "--swarm-url", "gpu=http://127.0.0.1:9")
    assert data["proxy"] is None
    assert (data["servers"][0]["name"], data["servers"][0]["claimed"]) == ("gpu", None)
    assert "no connection" in data["servers"][0]["error"]


def test_status_finds_a_proxy_that_does_not_answer(cli: Cli, home: Home) -> None:
    with Role(home, "proxy") as role:
        role.publish(url="http://127.0.0.1:9")
        assert "does not answer" in cli.json("status")["proxy"]["error"]


@pytest.mark.slow
def test_python_m_console_is_the_command_line() -> None:
    assert console.cli.main is main
    done = subprocess.run(
        [sys.executable, "-m", "console", "rate"], cwd=_ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "GROUP" in done.stderr


def envelope(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Run a command with `--json`; return its exit code and what it printed."""
    code = main(argv)
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert body["exit_code"] == code
    assert body["ok"] is (code in (0, 3, 4))
    assert ("error" in body) is not body["ok"]
    return code, body


@pytest.mark.parametrize(
    ("argv", "code", "verb", "message"),
    [
        (["abort", "g1", "--yes", "--json"], 1, "abort", "no proxy runs in this home"),
        (["status", "--json", "--nonsense"], 2, "status", "there is no option --nonsense"),
        (["status", "--json", "--url", "x"], 2, "status", "not an address"),
        (["nonsense", "--json"], 2, "", "there is no verb `nonsense`"),
        (["rating", "mode", "sometimes", "--json"], 2, "rating mode", "there is no `sometimes`"),
        (["runs", "show", "many", "--json"], 2, "runs show", "'many' is not a valid integer"),
        (["journal", "prune", "--json"], 2, "journal prune", "there is no journal"),
    ],
)
def test_an_error_is_an_envelope(
    argv: list[str],
    code: int,
    verb: str,
    message: str,
    home: Home,
    capsys: pytest.CaptureFixture[str],
) -> None:
    got, body = envelope(argv, capsys)
    assert (got, body["verb"]) == (code, verb)
    assert message in body["error"]["message"]
    assert set(body["error"]) == {"message", "where", "todo"}


def test_an_error_is_on_standard_error_as_well(cli: Cli, home: Home) -> None:
    assert "no proxy runs in this home" in cli.failed("mock", "stop", "--json")


def test_the_fields_of_a_verb_stand_beside_those_of_the_envelope(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    _, body = envelope(["status", "--json", "--swarm-url", "http://127.0.0.1:9"], capsys)
    assert (body["verb"], body["home"], body["proxy"]) == ("status", str(home.root), None)


def test_a_verb_without_data_has_its_lines_as_text(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, body = envelope(["init", "passive", str(tmp_path / "app"), "--json", "--yes"], capsys)
    assert all(body["files"].values())
    assert f"read {tmp_path / 'app'}" in body["text"]


def test_a_stream_ends_with_an_envelope_only_after_a_failure(cli: Cli, home: Home) -> None:
    (line,) = cli.out("watch", "--json", code=1).splitlines()
    body = json.loads(line)
    assert (body["kind"], body["ok"], body["verb"]) == ("error", False, "watch")


VERBS = dict(verbs())


def example(verb: Verb) -> list[str]:
    """The words of an example, up to a second command line."""
    return shlex.split(verb.example.partition(" && ")[0])


@pytest.mark.parametrize("name", VERBS)
def test_the_command_accepts_its_example(name: str) -> None:
    args = parse([*name.split(), *example(VERBS[name])])
    filters.parse(getattr(args, "where", None) or "")
    assert name != "watch" or filters.parse(args.filter)


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if "group." in verb.command])
def test_an_example_names_groups_by_the_beginning_of_a_hexadecimal_id(name: str) -> None:
    args = vars(parse([*name.split(), *example(VERBS[name])]))
    groups = [args["group_id"]] if "group_id" in args else args["groups"]
    assert groups or args["where"]
    assert all(re.fullmatch("[0-9a-f]{4}", group) for group in groups)


@pytest.mark.parametrize("name", ["weight", "gate", "enable", "whatif", "apply"])
def test_an_example_names_parts_of_the_built_in_rewards(name: str) -> None:
    args = parse(["rewards", name, *example(VERBS[f"rewards {name}"])])
    weights = [pair.partition("=")[0] for pair in getattr(args, "weights", ())]
    for part in weights or [args.part]:
        assert default_model().named(part) is not None


def test_the_example_of_alert_dismiss_is_the_key_of_an_alert() -> None:
    assert VERBS["alerts dismiss"].example == "lost:gpu"
