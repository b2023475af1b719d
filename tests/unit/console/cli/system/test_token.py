"""`token`: created once, listed without its text, revoked; a wrong use changes nothing."""

import contextlib
from pathlib import Path

import pytest

from console.cli import main
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from tests.support.commands.cli import Cli


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def run(home: Home, *args: str) -> int:
    return main(["--home", str(home.root), "token", *args])


def test_a_token_is_shown_once_and_listed_without_its_text(cli: Cli, home: Home) -> None:
    data = cli.json("token", "add", "anna", "--role", "rater", "--expires", "8h")
    assert data["expires"] - data["created"] == 8 * 3_600
    assert AccessTokens(home).identity(data["token"]) == Identity("anna", "rater")
    shown = cli.out("token", "add", "boris", "--role", "viewer")
    text = next(line.strip() for line in shown.splitlines() if line.startswith("  "))
    assert AccessTokens(home).identity(text) == Identity("boris", "viewer")
    listed = cli.out("token").splitlines()
    assert listed[0].startswith("anna   rater     valid until 20")
    assert listed[1] == "boris  viewer    valid until it is revoked"
    assert "revoked" in cli.out("token", "revoke", "anna")
    assert AccessTokens(home).identity(data["token"]) is None


def test_a_token_is_written_to_a_new_private_file(cli: Cli, home: Home, tmp_path: Path) -> None:
    file = tmp_path / "anna.token"
    shown = cli.out("token", "add", "anna", "--role", "operator", "--out", file)
    assert file.read_text().strip() not in shown
    assert file.stat().st_mode & 0o777 == 0o600
    assert AccessTokens(home).identity(file.read_text().strip()) == Identity("anna", "operator")
    shown = cli.refused("token", "add", "boris", "--role", "viewer", "--out", file)
    assert "exists already" in shown
    missing = tmp_path / "missing" / "x"
    shown = cli.failed("token", "add", "clara", "--role", "viewer", "--out", missing)
    assert "cannot be written" in shown
    assert [one.name for one in AccessTokens(home).read()] == ["anna"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["add", "anna", "--role", "rater"], "there is a token named anna already"),
        (["add", "a b", "--role", "rater"], "not a name"),
        (["add", "x", "--role", "boss"], "invalid choice"),
        (["add", "x", "--role", "rater", "--expires", "soon"], "not a duration"),
        (["revoke", "x"], "there is no token named x"),
    ],
)
def test_wrong_use_changes_nothing(
    cli: Cli, home: Home, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    AccessTokens(home).add("anna", "rater")
    before = AccessTokens(home).read()
    with contextlib.suppress(SystemExit):  # of the parser
        cli("token", *args, code=2)
    assert message in capsys.readouterr().err
    assert AccessTokens(home).read() == before


def test_a_read_only_command_line_lists_only(cli: Cli, home: Home) -> None:
    start = ["--home", str(home.root), "--read-only", "token"]
    cli(*start, "list")
    assert "refused with --read-only" in cli.refused(*start, "add", "anna", "--role", "rater")


def test_a_token_is_added_before_the_first_start(cli: Cli, tmp_path: Path) -> None:
    new = Home.at(tmp_path / "new")
    cli("--home", new.root, "token", "add", "anna", "--role", "rater", "--dry-run")
    assert not new.root.exists()
    assert "no token named anna" in cli.refused("--home", new.root, "token", "revoke", "anna")
    cli("--home", new.root, "token", "add", "anna", "--role", "rater")
    assert [one.name for one in AccessTokens(new).read()] == ["anna"]
