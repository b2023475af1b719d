"""`token`: created once, listed without its text, revoked; a wrong use changes nothing."""

import contextlib
import json
from pathlib import Path

import pytest

from console.cli import main
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def run(home: Home, *args: str) -> int:
    return main(["--home", str(home.root), "token", *args])


def test_a_token_is_shown_once_and_listed_without_its_text(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "add", "anna", "--role", "rater", "--expires", "8h", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["expires"] - data["created"] == 8 * 3_600
    assert AccessTokens(home).identity(data["token"]) == Identity("anna", "rater")
    assert run(home, "add", "boris", "--role", "viewer") == 0
    shown = capsys.readouterr().out
    text = next(line.strip() for line in shown.splitlines() if line.startswith("  "))
    assert AccessTokens(home).identity(text) == Identity("boris", "viewer")
    assert run(home) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].startswith("anna   rater     valid until 20")
    assert listed[1] == "boris  viewer    valid until it is revoked"
    assert run(home, "revoke", "anna") == 0
    assert "revoked" in capsys.readouterr().out
    assert AccessTokens(home).identity(data["token"]) is None


def test_a_token_is_written_to_a_new_private_file(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "anna.token"
    assert run(home, "add", "anna", "--role", "operator", "--out", str(file)) == 0
    assert file.read_text().strip() not in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600
    assert AccessTokens(home).identity(file.read_text().strip()) == Identity("anna", "operator")
    assert run(home, "add", "boris", "--role", "viewer", "--out", str(file)) == 2
    assert "exists already" in capsys.readouterr().err
    missing = tmp_path / "missing" / "x"
    assert run(home, "add", "clara", "--role", "viewer", "--out", str(missing)) == 1
    assert "cannot be written" in capsys.readouterr().err
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
    home: Home, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    AccessTokens(home).add("anna", "rater")
    before = AccessTokens(home).read()
    with contextlib.suppress(SystemExit):  # of the parser
        assert run(home, *args) == 2
    assert message in capsys.readouterr().err
    assert AccessTokens(home).read() == before


def test_a_read_only_command_line_lists_only(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["--home", str(home.root), "--read-only", "token"]
    assert main([*start, "list"]) == 0
    assert main([*start, "add", "anna", "--role", "rater"]) == 2
    assert "refused with --read-only" in capsys.readouterr().err


def test_a_token_is_added_before_the_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = Home.at(tmp_path / "new")
    assert run(new, "add", "anna", "--role", "rater", "--dry-run") == 0
    assert not new.root.exists()
    assert run(new, "revoke", "anna") == 2
    assert "no token named anna" in capsys.readouterr().err
    assert run(new, "add", "anna", "--role", "rater") == 0
    assert [one.name for one in AccessTokens(new).read()] == ["anna"]
