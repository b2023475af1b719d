"""The questions on a terminal: defaults, `b`, what a check refuses, single changes."""

import asyncio
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console.cli.setup import config
from console.cli.setup.dialog import ask_missing, review
from console.cli.setup.question import Draft
from console.cli.setup.questions import take_present
from core.runtime.home import Home
from tests.support.scripted.swarm import ScriptedSwarm


def draft(root: Path) -> Draft:
    """The draft of a home with its present answers; its working folder is empty."""
    made = Draft.of(Home.at(root), root / "here")
    take_present(made)
    return made


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs installed on this machine change no test."""
    monkeypatch.setattr("console.clients.catalog.shutil.which", lambda name: None)


@pytest.fixture
def dialog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Draft]:
    """Makes a draft whose operator enters the given lines."""

    def entered(*lines: str) -> Draft:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return draft(tmp_path)

    return entered


def test_enter_takes_the_defaults(dialog: Callable[..., Draft]) -> None:
    one = dialog("", "", "", "", "")
    ask_missing(one)
    assert list(one.answers) == ["application", "dataset", "rewards", "engine", "rating"]
    assert list(one.answers.values()) == ["openai", "shipped", "built_in", "laptop", "off"]
    assert one.changed == set(one.answers)


def test_b_goes_back_and_a_refused_answer_is_asked_again(
    dialog: Callable[..., Draft], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "One?"}\n{"query": "Two?"}\n')
    lines = ("b", "", str(rows), "jugde", "9", "b", "", "3", "gpu", "", "9", "²", "hold")
    one = dialog(*lines)
    ask_missing(one)
    assert one.answers["dataset"] == str(rows)
    assert (one.answers["rewards"], one.answers["rating"]) == ("hooks", "hold")
    output = capsys.readouterr().out
    assert "there is no question to go back to" in output
    assert "there is no answer 9. 1 to 3" in output
    assert "`²` is not an answer" in output
    assert "Did you mean `judge`?" in output
    assert "2 rows; the first one: One?" in output
    assert "does not choose the model for a GPU" in output


def test_the_end_of_the_input_ends_the_setup(dialog: Callable[..., Draft]) -> None:
    one = dialog("")
    with pytest.raises(KeyboardInterrupt):
        ask_missing(one)


def test_single_answers_are_changed_and_only_what_they_raise_is_asked(
    dialog: Callable[..., Draft], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("rating: {mode: off}\n")
    url = "http://127.0.0.1:9/v1"  # nothing answers there: Enter uses it nevertheless
    lines = ("3", "judge", "notaurl", url, "-", "7", "big", "", "5", "b", "x", "")
    one = dialog(*lines)
    assert review(one) == "write"
    assert one.changed == {"rewards", "judge_url", "judge_model"}, one.changed
    assert one.answers["judge_url"] == url
    assert (one.answers["judge_key_env"], one.answers["judge_model"]) == ("", "big")
    assert one.answers["application"] == ""
    output = capsys.readouterr().out
    assert "`7` is a number, not a model" in output
    assert "Enter uses it nevertheless" in output
    assert "`x` is not one of them: 1 to 8" in output


def test_answers_of_a_judge_are_emptied_and_a_variable_may_be_set_later(
    dialog: Callable[..., Draft], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = {"rewards": "judge", "judge_url": "http://127.0.0.1:9/v1", "engine": "laptop"}
    first = {**judge, "judge_key_env": "NO_SUCH_KEY", "judge_model": "big", "rating": "off"}
    before = draft(tmp_path)
    before.answers, before.changed = first, set(first)
    config.apply(before.home, config.planned(before))
    # the key is emptied, a server that does not answer makes the model asked again: emptied as well
    one = dialog("5", "-", "-", "", "")
    assert review(one) == "write"
    assert one.changed == {"judge_key_env", "judge_model"}
    texts = config.planned(one)
    text = texts[one.judge_file]
    assert "key_env: null" in text
    assert "model: null" in text
    config.apply(one.home, texts)
    # an answer that was emptied stays the default when the URL is changed
    one = dialog("4", "http://127.0.0.1:8/v1", "", "", "", "")
    assert review(one) == "write"
    assert (one.answers["judge_key_env"], one.answers["judge_model"]) == ("", "")
    one = dialog("5", "NO_SUCH_KEY", "", "big", "")
    assert review(one) == "write"
    assert one.answers["judge_key_env"] == "NO_SUCH_KEY"
    output = capsys.readouterr().out
    assert "the variable is not set" in output
    assert "not checked: NO_SUCH_KEY is not set" in output


def test_an_unchanged_setup_can_send_a_request(
    dialog: Callable[..., Draft], tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text("rating: {mode: off}\n")
    assert review(dialog("t")) == "try"
    one = dialog("5", "hold", "5", "off", "")
    assert review(one) == "write"
    assert not one.changed


async def test_a_server_is_asked_and_the_job_it_needs_is_shown(
    dialog: Callable[..., Draft], capsys: pytest.CaptureFixture[str]
) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm:
        lines = ("", "none", "", f"{swarm.url}/v1", "tiny", "org/model", "zero", "4", "")
        one = dialog(*lines)
        await asyncio.to_thread(ask_missing, one)
    assert (one.answers["engine"], one.answers["model"]) == (swarm.url, "org/model")
    assert one.answers["gpus"] == "4"
    output = capsys.readouterr().out
    assert "cannot be `zero`" in output
    assert "is OFFLINE, speaks the protocol" in output
    assert "`tiny` is a model of the embedded engine" in output
    assert "path: org/model" in output
    assert "enable_swarm_mode: true" in output
