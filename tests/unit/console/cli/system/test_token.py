"""`token`: created once, listed without its text, revoked; a wrong use changes nothing."""

from pathlib import Path

import pytest

from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from tests.support.commands.cli import Cli


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
