"""The flags of `mock`, and where it finds datasets."""

from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from console.backend.mock_process import FLAGS, check_target, mock_args
from console.models.datasets import datasets, find_dataset
from core.commands import COMMANDS
from core.runtime.home import Home
from mock.user_requests import MockOptions
from tests.support.commands.cli import Cli

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
    result = [(one.name, one.where, one.folder) for one in datasets(home.root, tmp_path)]
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
    user = runs[0].user
    assert user is not None
    assert (user.url, user.key, user.turns, user.temperature) == (
        url,
        key,
        turns,
        1.0 if "--user-url" in flags else 0.5,
    )
    assert user.seed == (None if "--user-url" in flags else 9)
