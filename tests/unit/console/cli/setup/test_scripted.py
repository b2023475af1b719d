"""The setup without a terminal: answers on the command line, what is written, what is refused."""

import io
import json
import sys
from pathlib import Path

import pytest

from console.cli import main, parse
from console.cli.setup.command import NOT_OF_PROXY, Setup
from core.runtime.home import Home, RunInfo
from core.settings import load
from tests.support.commands.cli import missing

ALL = ["application=openai", "dataset=none", "rewards=built_in", "engine=laptop", "rating=off"]


class TerminalInput(io.StringIO):
    """What an operator types."""

    def isatty(self) -> bool:
        return True


def setup(home: Path, *args: str) -> int:
    """Run the command without a request."""
    return main(["setup", "--home", str(home), "--no-request", *args])


def test_answers_become_settings_with_comments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert setup(home, *ALL[:-1], "rating=hold", "--json") == 0
    output = json.loads(capsys.readouterr().out)
    assert output["written"] == [str(home / "config.yaml")]
    assert output["answers"]["rating"] == "hold"
    assert output["base_url"] == "http://127.0.0.1:8000/v1"
    settings = load(home / "config.yaml", environment={})
    assert settings.rating.mode == "hold"
    assert settings.console.application == "openai"
    text = (home / "config.yaml").read_text()
    assert text.count("# Setup, ") == 5
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_a_second_setup_changes_one_answer_and_no_other_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    tmp_path.chmod(0o700)
    file.write_text("# mine\nproxy: {port: 8001}  # the lab\nrating:\n  window: 5\n")
    assert setup(tmp_path, "rating=answer_first") == 0
    assert file.read_text() == (
        "# mine\nproxy: {port: 8001}  # the lab\nrating:\n"
        "  window: 5\n  # Setup, rating: users are answered at once, you vote later\n"
        '  mode: "answer_first"\n'
    )
    assert setup(tmp_path, "rating=off") == 0
    capsys.readouterr()
    assert setup(tmp_path, "rating=off") == 0
    assert capsys.readouterr().out == "Nothing was changed\n"
    assert setup(tmp_path, "--dry-run") == 0
    assert "would change nothing" in capsys.readouterr().out
    lines = file.read_text().splitlines()
    assert '  mode: "off"' in lines
    assert sum("Setup, rating" in line for line in lines) == 1


def test_the_example_of_hooks_is_written_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert setup(home, *ALL, "rewards=hooks") == 0
    hook = home / "hooks" / "on_compute_relative_reward.py"
    compile(hook.read_text(), str(hook), "exec")
    assert load(home / "config.yaml", environment={}).rewards.hooks == str(hook.parent)
    hook.write_text("def on_compute_relative_reward(valid_results, all_answers): return []\n")
    assert setup(home, "rewards=built_in") == 0
    assert setup(home, "rewards=hooks") == 0
    assert "loads" in capsys.readouterr().out
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
def test_a_wrong_answer_writes_nothing(
    answer: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert setup(home, *ALL, answer) == 2
    assert expected in capsys.readouterr().err
    assert not home.exists()


def test_a_question_without_answer_and_terminal_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup(tmp_path / "home", "rewards=built_in") == 2
    error = capsys.readouterr().err
    assert "no answer to dataset, engine, rating, and no terminal" in error
    assert "Give dataset=VALUE: shipped | none" in error
    assert not (tmp_path / "home").exists()


def test_a_file_of_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text("\n".join(one.replace("=", ": ") for one in ALL))
    assert setup(tmp_path / "home", "--answers", str(answers), "--dry-run") == 0
    assert 'mode: "off"' in capsys.readouterr().out
    assert not (tmp_path / "home").exists()
    answers.write_text("rating: off\nreward: x\n")
    assert setup(tmp_path / "home", "--answers", str(answers)) == 2
    assert f"{answers}:2" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_refused_unless_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    answers = [*ALL, "engine=http://127.0.0.1:9/v1", "model=org/model"]
    assert setup(home, *answers) == 2
    assert "--no-check writes the answer nevertheless" in capsys.readouterr().err
    assert not home.exists()
    assert setup(home, *answers, "--no-check") == 0
    assert load(home / "config.yaml", environment={}).swarm_url == "http://127.0.0.1:9"
    job = (home / "jobs" / "swarm.yaml").read_text()
    assert "org/model" in job


def test_a_judge_without_a_key_and_one_whose_variable_is_set_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = [*ALL, "rewards=judge", "judge_url=http://127.0.0.1:9/v1"]
    assert setup(tmp_path, *judge, "judge_key_env=NO_SUCH_KEY") == 2
    assert "--no-check writes the answer nevertheless" in capsys.readouterr().err
    assert setup(tmp_path, *judge, "judge_key_env=NO_SUCH_KEY", "--no-check") == 0
    assert 'key_env: "NO_SUCH_KEY"' in (tmp_path / "judge.yaml").read_text()
    assert setup(tmp_path, "judge_key_env=none", "--no-check") == 0
    assert "key_env: null" in (tmp_path / "judge.yaml").read_text()


def test_an_embedded_engine_at_a_url_has_its_model_also_at_the_second_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [*ALL, "engine=http://127.0.0.1:9", "model=org/model"]
    assert setup(tmp_path, *answers, "--no-check") == 0

    async def embedded(name: str, url: str) -> bool:
        return url == "http://127.0.0.1:9"

    monkeypatch.setattr("console.cli.setup.servers.answers_as_embedded", embedded)
    assert setup(tmp_path, "model=org/model") == 2
    assert "`model` is not asked with these answers" in capsys.readouterr().err


def test_a_restart_of_the_proxy_says_what_it_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home.open(tmp_path / "home")
    info = RunInfo(role="proxy", pid=7, started_at=0.0, port=9, url="http://127.0.0.1:9")
    monkeypatch.setattr("console.cli.setup.command.running", lambda *_: info)

    async def waiting(role: str, home: Home) -> list[str]:
        return [f"2 groups wait for the {role}."]

    monkeypatch.setattr("console.cli.setup.command.losses", waiting)
    monkeypatch.setattr(sys, "stdin", TerminalInput("n\n"))
    args = parse(["setup", "--home", str(home.root)])
    one = Setup(args, home, asks=True)
    assert one._restart_port() == 0
    shown = "".join(capsys.readouterr())
    assert not missing(shown, "Restart it now? 2 groups wait for the proxy. [y/N]", "it keeps them")
    assert not NOT_OF_PROXY & {"rewards", "engine", "rating"}
    assert "model" in NOT_OF_PROXY
