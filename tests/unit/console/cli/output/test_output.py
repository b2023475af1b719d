"""The envelope of `--json`: the same fields around every result and every error."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from core.runtime.home import Home
from tests.support.commands.cli import Cli


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


def test_a_dry_run_writes_nothing(
    cli: Cli, home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "app"
    _, body = envelope(["init", "passive", str(target), "--json", "--yes", "--dry-run"], capsys)
    assert body["dry_run"] is True
    assert len(body["steps"]) == len(body["files"]) > 2
    assert "dry run: nothing was changed" in cli.out(
        "init", "compat", tmp_path / "shim", "--dry-run"
    )
    for argv in (["run", "proxy", "--port", "0"], ["run", "engine", "--port", "0"]):
        cli(*argv, "--home", tmp_path / "new", "--dry-run")
    assert list(tmp_path.iterdir()) == [home.root] or not target.exists()
    assert not (tmp_path / "new").exists()


def test_a_stream_ends_with_an_envelope_only_after_a_failure(cli: Cli, home: Home) -> None:
    (line,) = cli.out("watch", "--json", code=1).splitlines()
    body = json.loads(line)
    assert (body["kind"], body["ok"], body["verb"]) == ("error", False, "watch")
