"""`rewards test` on the command line."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runtime.home import Home
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.pty.text import TerminalText
from tests.support.sample import NOW, group_events
from tests.unit.proxy.rewards.rescore.test_rescore import write_journal, written

pytestmark = pytest.mark.slow

ROWS = (
    {"query": "q", "answers": ["Paris is it.", "no"], "rewards": [0.1, 0.9]},
    {"query": "r", "answers": ["a b c", "d e f"]},
)


HOOK = "def on_compute_relative_reward(results, answers):\n    total = 1\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return Home.open(tmp_path / "home").root


def hooks(tmp_path: Path, line: str) -> str:
    folder = tmp_path / "hooks"
    folder.mkdir(exist_ok=True)
    (folder / "on_compute_relative_reward.py").write_text(f"{HOOK}    {line}\n")
    return str(folder)


@pytest.fixture
def score(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "rewards", "test")


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A file of two groups."""
    return written(tmp_path / "f.jsonl", *ROWS)


@pytest.fixture
def debugged(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A journal with one group; afterwards the modules of its hooks are gone."""
    write_journal(home / "journal.db", group_events(1, rewards=[0.1, 0.2, 0.3, 0.4], at=NOW))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    hook = ("on_compute", "ajet.")
    for name in [name for name in sys.modules if name == "ajet" or name.startswith(hook)]:
        del sys.modules[name]


def test_a_file_with_the_built_in_rewards(score: Cli, home: Path, cases: Path) -> None:
    shown = score.out("--file", cases)
    assert not missing(
        shown,
        "winner 2 to 1",
        "winner flips 1 of 1, dead groups gained 0, lost 0",
        "2 groups, version ",
        " s of scoring",
    )


def test_a_missing_home_gets_only_the_output_of_the_hooks(
    score: Cli, tmp_path: Path, cases: Path
) -> None:
    home, file = tmp_path / "missing", cases
    score("--home", home, "--file", file)
    assert not home.exists()
    line = "return [total / (2 + place) for place in range(len(answers))]"
    score("--home", home, "--file", file, "--hooks", hooks(tmp_path, line))
    assert [path.name for path in home.rglob("*")] == ["logs", "hooks.log"]
    assert home.stat().st_mode & 0o077 == 0
    assert Home.open(home).exists


def test_the_journal_with_hooks_as_data(score: Cli, home: Path, tmp_path: Path) -> None:
    rewards = [0.2, 0.8, 0.4, 0.1]
    write_journal(
        home / "journal.db", *(group_events(n, rewards=rewards, at=NOW + n) for n in (1, 2, 3))
    )
    line = "return [total / (2 + place) for place in range(len(answers))]"
    body = score.json("--last", "2", "--hooks", hooks(tmp_path, line))
    assert body["summary"]["flips"] == 2
    assert [group["group_id"] for group in body["groups"]] == ["g0002", "g0003"]
    assert [group["winner_before"] for group in body["groups"]] == [1, 1]
    assert [group["winner_after"] for group in body["groups"]] == [0, 0]
    shown = score.out("--one", "g0003")
    assert not missing(shown, "answer 2: ", "(sent 0.8)", "diversity")


def test_abstentions_and_faults_have_their_exit_codes(
    score: Cli, home: Path, tmp_path: Path, cases: Path
) -> None:
    out = score.out("--file", cases, "--hooks", hooks(tmp_path, "return [total / 0]"), code=1)
    assert "abstained 2: ZeroDivisionError" in out
    assert out.count("Traceback") == 1
    shown = score.failed("--file", cases, "--hooks", hooks(tmp_path, "return ("))
    assert "on_compute_relative_reward.py:3" in shown
    mixed = str(written(tmp_path / "m.jsonl", {"query": "q"}, *ROWS))
    assert f"skipped: {mixed}:1: answers" in score.failed("--file", mixed)


@pytest.mark.parametrize(
    "args",
    [
        ("--last", "0"),
        ("--last", "abc"),
        ("--pdb",),
        ("--last", "3"),
        ("--weight", "lenth=1", "--file", "F"),
        ("--weight", "length", "--file", "F"),
        ("--weight", "length=nan", "--file", "F"),
        ("--last", "3", "--one", "g"),
        ("--rewards", "a", "--hooks", "b"),
        ("--file", "none.jsonl"),
    ],
)
def test_wrong_use(score: Cli, args: tuple[str, ...], home: Path, cases: Path) -> None:
    shown = score.refused(*(cases if word == "F" else word for word in args))
    assert args != ("--last", "abc") or "'--last': 'abc' is not a valid integer" in shown
    assert "_positive" not in shown


@pytest.mark.parametrize("row", [{"query": "q", "answers": []}, {"query": "q", "answers": "a"}])
def test_an_invalid_field_is_not_reported_as_missing(
    score: Cli, row: dict[str, object], home: Path, tmp_path: Path
) -> None:
    file = str(written(tmp_path / "f.jsonl", row))
    error_output = score.refused("--file", file)
    assert "Expected `array`" in error_output
    assert "missing" not in error_output
    near = str(written(tmp_path / "near.jsonl", {"query": "q", "answer": ["a"]}))
    shown = score.refused("--file", near)
    assert not missing(shown, "missing required field `answers`", "A line has query, answers")


def test_the_debugger_stops_in_the_hook(
    score: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, debugged: None
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p len(answers) * 111\nc\n"))
    folder = hooks(tmp_path, "return [total * 0.5 for _ in answers]")
    shown = score.out("--one", "g0001", "--hooks", folder, "--pdb")
    assert not missing(shown, "on_compute_relative_reward.py(2)", "444", "rewards 0.5 0.5 0.5 0.5")


JUDGED = """\
parts:
  helpful:
    kind: judge
    url: http://127.0.0.1:9
    model: m
    mode: MODE
    rubric: Which is better?
    price_in: 10
    price_out: 100
    max_tokens: 1000
"""


@pytest.mark.parametrize(
    ("mode", "calls"), [("listwise", 2), ("pointwise", 5), ("pairwise", 2 * 1 + 3 * 2)]
)
def test_a_judge_is_called_only_after_confirming_calls_and_cost(
    score: Cli, mode: str, calls: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ({"query": "q", "answers": ["a", "b"]}, {"query": "r", "answers": ["a", "b", "c"]})
    cases = str(written(tmp_path / "f.jsonl", *rows))
    file = tmp_path / "judged.yaml"
    file.write_text(JUDGED.replace("MODE", mode))

    async def never(*args: object) -> None:
        raise AssertionError

    monkeypatch.setattr("console.cli.rewards.test._run", never)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    error_output = score.refused("--file", cases, "--rewards", file)
    assert f"Score 2 groups with judge helpful: at most {calls} calls, about " in error_output
    assert f"cost at most about {calls * 0.1:.1f}" in error_output  # nearly all of the replies
    assert "Add --yes" in error_output
    monkeypatch.setattr(sys, "stdin", TerminalText("n\n"))
    score("--file", cases, "--rewards", file, code=1)


def test_after_the_confirmation_the_judge_is_called(
    score: Cli, home: Path, tmp_path: Path, cases: Path
) -> None:
    file = tmp_path / "judged.yaml"
    file.write_text(JUDGED.replace("MODE", "listwise") + "    retries: 0\n")
    score("--file", cases, "--rewards", file, "--yes", code=1)  # no terminal


def test_quitting_the_debugger_is_no_error(
    score: Cli,
    home: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    debugged: None,
) -> None:
    folder = hooks(tmp_path, "return [total * 0.5 for _ in answers]")
    built_in = tmp_path / "rewards.yaml"
    built_in.write_text("parts: {length: {weight: 1}}\n")
    for source in (("--hooks", folder), ("--rewards", str(built_in))):
        monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
        assert "rewards " not in score.out("--one", "g0001", *source, "--pdb", code=1)
        assert not caplog.records


@pytest.mark.parametrize("more", [[], ["--weight", "length=0.1"]])
def test_every_fault_of_a_rewards_file_has_its_own_line(
    score: Cli, more: list[str], home: Path, tmp_path: Path, cases: Path
) -> None:
    wrong = [f"  p{number}: {{kind: length, leest: 3}}" for number in range(12)]
    file = tmp_path / "wrong.yaml"
    file.write_text("\n".join(["parts:", *wrong]) + "\n")
    lines = score.failed("--file", cases, "--rewards", file, *more).splitlines()
    assert len(lines) == 13
    for number, line in enumerate(lines[1:]):
        assert line.startswith(f"{file}:{number + 2}: parts.p{number}.leest: ")


def test_a_hook_that_does_not_load_shows_its_traceback_below_the_cause(
    score: Cli, home: Path, tmp_path: Path, cases: Path
) -> None:
    lines = score.failed("--file", cases, "--hooks", hooks(tmp_path, "def broken(:")).splitlines()
    assert lines[0].endswith(":3: the rewards did not load: SyntaxError: invalid syntax")
    assert lines[1].startswith("  File ")


def test_a_zero_reward_is_shown_with_its_reason(score: Cli, home: Path, tmp_path: Path) -> None:
    row = {"query": "What is 3 + 4?", "answers": ["7", ""], "rewards": [0.2, 0.9]}
    file = str(written(tmp_path / "f.jsonl", row))
    assert "answer 2 is 0: degeneration: empty answer" in score.out("--file", file)
