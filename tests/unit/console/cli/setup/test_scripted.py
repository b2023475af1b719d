"""The setup without a terminal: answers on the command line, what is written, what is refused."""

import sys
from pathlib import Path

import pytest

from console.cli.setup.command import NOT_OF_PROXY, Setup
from console.cli.tree import parse
from core.runtime.home import Home, RunInfo
from core.settings import load
from tests.support.commands.cli import Cli, missing
from tests.support.pty.text import TerminalText

ALL = ["application=openai", "dataset=none", "rewards=built_in", "engine=laptop", "rating=off"]


@pytest.fixture
def setup(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command without a request."""
    return Cli(capsys, "setup", "--no-request")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


def test_answers_become_settings_with_comments(setup: Cli, home: Path) -> None:
    output = setup.json(*ALL[:-1], "rating=hold")
    assert output["written"] == [str(home / "config.yaml")]
    assert output["answers"]["rating"] == "hold"
    assert output["base_url"] == "http://127.0.0.1:8000/v1"
    settings = load(home / "config.yaml", environment={})
    assert settings.rating.mode == "hold"
    assert settings.console.application == "openai"
    text = (home / "config.yaml").read_text()
    assert text.count("# Setup, ") == 5
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_a_second_setup_changes_one_answer_and_no_other_line(setup: Cli, home: Path) -> None:
    home.mkdir(0o700)
    file = home / "config.yaml"
    file.write_text("# mine\nproxy: {port: 8001}  # the lab\nrating:\n  window: 5\n")
    setup("rating=answer_first")
    assert file.read_text() == (
        "# mine\nproxy: {port: 8001}  # the lab\nrating:\n"
        "  window: 5\n  # Setup, rating: users are answered at once, you vote later\n"
        '  mode: "answer_first"\n'
    )
    setup.run("rating=off")
    assert setup.out("rating=off") == "Nothing was changed\n"
    assert "would change nothing" in setup.out("--dry-run")
    lines = file.read_text().splitlines()
    assert '  mode: "off"' in lines
    assert sum("Setup, rating" in line for line in lines) == 1


def test_the_example_of_hooks_is_written_once(setup: Cli, home: Path) -> None:
    setup(*ALL, "rewards=hooks")
    hook = home / "hooks" / "on_compute_relative_reward.py"
    compile(hook.read_text(), str(hook), "exec")
    assert load(home / "config.yaml", environment={}).rewards.hooks == str(hook.parent)
    hook.write_text("def on_compute_relative_reward(valid_results, all_answers): return []\n")
    setup("rewards=built_in")
    assert "loads" in setup.out("rewards=hooks")
    assert hook.read_text().startswith("def ")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("engine=gpu", "does not choose the model for a GPU"),
        ("engine=laptoop", "Did you mean `laptop`?"),
        ("engine=http://user:pw@host:1", "contains a user or a password"),
        ("dataset=nothere.jsonl", "there is no dataset `nothere.jsonl`"),
        ("rewards=jugde", "Did you mean `judge`?"),
        ("rating=holt", "Did you mean `hold`?"),
        ("application=cursor2", "is not an answer"),
        ("judge_url=https://h/v1", "is not asked with these answers"),
        ("nothing=1", "there is no question `nothing`"),
        ("rating", "is not KEY=VALUE"),
        ("dataset=a\x1bb", "`a␛b` has control characters"),
    ],
)
def test_a_wrong_answer_writes_nothing(setup: Cli, home: Path, answer: str, expected: str) -> None:
    assert expected in setup.refused(*ALL, answer)
    assert not home.exists()


def test_a_question_without_answer_and_terminal_is_named(setup: Cli, home: Path) -> None:
    error = setup.refused("rewards=built_in")
    assert "no answer to dataset, engine, rating, and no terminal" in error
    assert "Give dataset=VALUE: shipped | none" in error
    assert not home.exists()


def test_a_file_of_answers(setup: Cli, home: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("\n".join(one.replace("=", ": ") for one in ALL))
    assert 'mode: "off"' in setup.out("--answers", str(answers), "--dry-run")
    assert not home.exists()
    answers.write_text("rating: off\nreward: x\n")
    assert f"{answers}:2" in setup.refused("--answers", str(answers))


def test_a_server_that_does_not_answer_is_refused_unless_unchecked(setup: Cli, home: Path) -> None:
    answers = [*ALL, "engine=http://127.0.0.1:9/v1", "model=org/model"]
    assert "--no-check writes the answer nevertheless" in setup.refused(*answers)
    assert not home.exists()
    setup(*answers, "--no-check")
    assert load(home / "config.yaml", environment={}).swarm_url == "http://127.0.0.1:9"
    job = (home / "jobs" / "swarm.yaml").read_text()
    assert "org/model" in job


def test_a_judge_without_a_key_and_one_whose_variable_is_set_later(setup: Cli, home: Path) -> None:
    judge = [*ALL, "rewards=judge", "judge_url=http://127.0.0.1:9/v1"]
    judge.append("judge_key_env=NO_SUCH_KEY")
    assert "--no-check writes the answer nevertheless" in setup.refused(*judge)
    setup(*judge, "--no-check")
    assert 'key_env: "NO_SUCH_KEY"' in (home / "judge.yaml").read_text()
    setup("judge_key_env=none", "--no-check")
    assert "key_env: null" in (home / "judge.yaml").read_text()


def test_an_embedded_engine_at_a_url_has_its_model_also_at_the_second_setup(
    setup: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [*ALL, "engine=http://127.0.0.1:9", "model=org/model"]
    setup(*answers, "--no-check")

    async def embedded(name: str, url: str) -> bool:
        return url == "http://127.0.0.1:9"

    monkeypatch.setattr("console.cli.setup.questions.answers_as_embedded", embedded)
    assert "`model` is not asked with these answers" in setup.refused("model=org/model")


def test_a_restart_of_the_proxy_says_what_it_loses(
    setup: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Home.open(home)
    info = RunInfo(role="proxy", pid=7, started_at=0.0, port=9, url="http://127.0.0.1:9")
    monkeypatch.setattr("console.cli.setup.command.running", lambda *_: info)

    async def waiting(role: str, home: Home) -> list[str]:
        return [f"2 groups wait for the {role}."]

    monkeypatch.setattr("console.cli.setup.command.losses", waiting)
    monkeypatch.setattr(sys, "stdin", TerminalText("n\n"))
    args = parse(["setup", "--home", str(home)])
    one = Setup(args, made, asks=True)
    assert one._restart_port() == 0
    shown = "".join(capsys.readouterr())
    assert not missing(shown, "Restart it now? 2 groups wait for the proxy. [y/N]", "it keeps them")
    assert not NOT_OF_PROXY & {"rewards", "engine", "rating"}
    assert "model" in NOT_OF_PROXY
