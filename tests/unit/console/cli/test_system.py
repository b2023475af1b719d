"""`completion`, `run service`, `tokens` and `run web`."""

import os
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from console.cli import main
from console.cli.system import web as served_page
from console.cli.system.shell import quoted
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home, Role
from tests.support.checks import missing
from tests.support.commands.cli import Cli

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ajet-console proxy re", {"restart"}),
        ("ajet-console checkpoints save --h", {"--help", "--home"}),
        ("ajet-console --theme ", {"dark", "light", "ansi"}),
    ],
)
def test_a_line_is_completed(line: str, expected: set[str]) -> None:
    words = line.split()
    asked = {
        "_AJET_CONSOLE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - (not line.endswith(" "))),
    }
    command = [sys.executable, "-c", "from console.cli import main; main()"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **asked},
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert {answer.partition(",")[2] for answer in done.stdout.split()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_the_program(cli: Cli, shell: str) -> None:
    assert not missing(cli.out("completion", shell), "ajet-console", "_AJET_CONSOLE_COMPLETE")


def test_another_shell_is_refused(cli: Cli) -> None:
    assert "Did you mean `bash`?" in cli.refused("completion", "basch")


def unit(text: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    return parser


def test_the_unit_runs_the_process_with_its_arguments_and_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--home", str(tmp_path), "run", "service", "proxy", "--port", "8001"])
    assert code == 0
    service = unit(capsys.readouterr().out)
    program, *arguments = service["Service"]["ExecStart"].split()
    assert Path(program).is_absolute()
    assert arguments[-6:] == ["run", "proxy", "--home", str(tmp_path), "--port", "8001"]
    assert service["Service"]["Restart"] == "on-failure"
    assert service["Install"]["WantedBy"] == "default.target"


def test_a_home_among_the_arguments_replaces_the_default(cli: Cli, tmp_path: Path) -> None:
    command = unit(cli.out("run", "service", "engine", "--home", tmp_path / "own"))["Service"][
        "ExecStart"
    ]
    assert command.count("--home") == 1
    assert command.endswith(f"engine --yes --home {tmp_path / 'own'}")


def test_a_unit_waits_for_no_answer(cli: Cli) -> None:
    shown = cli.out("run", "service", "engine", "--backend", "torch", "--model", "smollm2")
    assert " engine --yes " in unit(shown)["Service"]["ExecStart"]
    assert (
        unit(cli.out("run", "service", "engine", "--yes"))["Service"]["ExecStart"].count("--yes")
        == 1
    )


@pytest.mark.parametrize("flag", ["--dry-run", "--read-only"])
@pytest.mark.parametrize("process", ["proxy", "engine"])
def test_an_option_that_starts_nothing_is_refused(cli: Cli, process: str, flag: str) -> None:
    output = cli.run("run", "service", process, flag, code=2)
    assert f"{flag}" in output.err
    assert not output.out


def test_arguments_that_the_process_does_not_take_are_refused(cli: Cli) -> None:
    output = cli.run("run", "service", "proxy", "--prot", "1", code=2)
    assert "--prot" in output.err
    assert not output.out


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("plain", "plain"),
        ("a b", '"a b"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('say "x"', '"say \\"x\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("", '""'),
        (";", '";"'),
    ],
)
def test_an_argument_is_quoted_for_systemd(argument: str, text: str) -> None:
    assert quoted(argument) == text


def test_a_line_break_is_refused(cli: Cli) -> None:
    assert "line break" in cli.refused("run", "service", "proxy", "--swarm-url", "http://a\nb")


@pytest.fixture
def token(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "tokens")


def test_a_token_is_shown_once_and_listed_without_its_text(token: Cli, home: Home) -> None:
    data = token.json("add", "anna", "--role", "rater", "--expires", "8h")
    assert data["expires"] - data["created"] == 8 * 3_600
    assert AccessTokens(home).identity(data["token"]) == Identity("anna", "rater")
    shown = token.out("add", "boris", "--role", "viewer")
    text = next(line.strip() for line in shown.splitlines() if line.startswith("  "))
    assert AccessTokens(home).identity(text) == Identity("boris", "viewer")
    listed = token.out().splitlines()
    assert listed[0].startswith("anna   rater     valid until 20")
    assert listed[1] == "boris  viewer    valid until it is revoked"
    assert "revoked" in token.out("revoke", "anna")
    assert AccessTokens(home).identity(data["token"]) is None


def test_a_token_is_written_to_a_new_private_file(token: Cli, home: Home, tmp_path: Path) -> None:
    file = tmp_path / "anna.token"
    shown = token.out("add", "anna", "--role", "operator", "--out", file)
    assert file.read_text().strip() not in shown
    assert file.stat().st_mode & 0o777 == 0o600
    assert AccessTokens(home).identity(file.read_text().strip()) == Identity("anna", "operator")
    assert "exists already" in token.refused("add", "boris", "--role", "viewer", "--out", file)
    missing = tmp_path / "missing" / "x"
    assert "cannot be written" in token.failed("add", "clara", "--role", "viewer", "--out", missing)
    assert [one.name for one in AccessTokens(home).read()] == ["anna"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["add", "anna", "--role", "rater"], "there is a token named anna already"),
        (["add", "a b", "--role", "rater"], "not a name"),
        (["add", "x", "--role", "boss"], "there is no `boss`. Choose from"),
        (["add", "x", "--role", "rater", "--expires", "soon"], "not a duration"),
        (["revoke", "x"], "there is no token named x"),
    ],
)
def test_wrong_use_changes_nothing(token: Cli, home: Home, args: list[str], message: str) -> None:
    AccessTokens(home).add("anna", "rater")
    before = AccessTokens(home).read()
    assert message in token.refused(*args)
    assert AccessTokens(home).read() == before


def test_a_read_only_command_line_lists_only(token: Cli, home: Home) -> None:
    token("--read-only", "list")
    shown = token.refused("--read-only", "add", "anna", "--role", "rater")
    assert "refused with --read-only" in shown


def test_a_token_is_added_before_the_first_start(token: Cli, tmp_path: Path) -> None:
    new = Home.at(tmp_path / "new")
    place = ("--home", new.root)
    token("add", "anna", "--role", "rater", *place, "--dry-run")
    assert not new.root.exists()
    assert "no token named anna" in token.refused("revoke", "anna", *place)
    token("add", "anna", "--role", "rater", *place)
    assert [one.name for one in AccessTokens(new).read()] == ["anna"]


@pytest.fixture
def web(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "run", "web")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--host", "0.0.0.0"], "without TLS"),
        (["--host", "gpu-box"], "without TLS"),
        (["--tls-cert", "cert.pem"], "TLS needs a certificate and its key"),
        (["--public-url", "gpu-box"], "not an address"),
        (["--public-url", "https://gpu-box/?a=1"], "not an address of a page"),
        (["--public-url", "https://gpu-box/#a"], "not an address of a page"),
        (["--public-url", "https://me@gpu-box/"], "not an address of a page"),
        (["--public-url", "https://gpu-box/a/../b"], "not an address of a page"),
        (["--base-path", "http://gpu-box/x"], "not a path"),
        (["--base-path", "/a/../b"], "not a path"),
        (["--base-path", "/{name}"], "not a path"),
        (["--base-path", "/a?b"], "not a path"),
        (["--link", "rater", "--name", "bad name"], "--name bad name"),
        (["--link", "rater", "--expires", "never"], "--expires"),
        (["--most", "0"], "'--most': 0 is not in the range"),
        (["--list"], "no web server runs in this home"),
        ([], "no proxy runs in this home"),
    ],
)
def test_it_refuses_with_a_reason_and_creates_no_token(
    web: Cli, home: Home, args: list[str], message: str
) -> None:
    assert message in web.err(*args, code=1 if "runs in this home" in message else 2)
    assert AccessTokens(home).read() == ()


def test_it_prints_links_for_the_server_that_runs(web: Cli, home: Home) -> None:
    with Role(home, "web") as role:
        extra = {"link": "https://gpu.example/console"}
        role.publish(host="127.0.0.1", port=8090, url="http://127.0.0.1:8090", extra=extra)
        data = web.json("--link", "viewer", "--name", "vera")
        link, _, key = data["link"].partition("?k=")
        assert link == "https://gpu.example/console/"
        assert AccessTokens(home).identity(key) == Identity("vera", "viewer")
        error = web.refused("--link", "rater", "--name", "vera")
        assert not missing(error, "there is a token named vera already", "--name vera")
        renewed = web.json("--link", "rater", "--name", "vera", "--renew")["link"].partition("?k=")[
            2
        ]
        assert AccessTokens(home).identity(renewed) == Identity("vera", "rater")
        assert AccessTokens(home).identity(key) is None
        AccessTokens(home).add("boss", "operator", None)
        shown = web.refused("--link", "rater", "--name", "boss", "--renew")
        assert "there is a token named boss already" in shown
        assert "not a duration" in web.refused("--link", "rater", "--expires", "soon")
        assert "tokens revoke rater-" in web.out("--link", "rater")
        assert "it runs already" in web.refused()


def test_the_second_start_with_a_link_serves_and_says_that_the_link_is_valid(
    web: Cli, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def serve(_args: object, _home: Home, _role: Role, valid: str) -> None:
        served.append(valid)

    monkeypatch.setattr(served_page, "_serve", serve)
    monkeypatch.setattr(served_page, "need_proxy", lambda *_: "http://127.0.0.1:1")
    web("--link", "rater", "--name", "anna")
    AccessTokens(home).add("anna", "rater", 60)
    web("--link", "rater", "--name", "anna")
    web("--link", "rater", "--name", "anna", "--renew")
    web("--link", "viewer", "--name", "anna", code=2)
    first, second, third = served
    assert (first, third) == ("", "")
    assert not missing(second, "The link of anna, rater, is valid", "--renew")
