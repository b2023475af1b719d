"""The setup in a real terminal: twice with the laptop engine, and stopped half-way."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.runtime.home import running
from core.settings import load
from tests.support.pty.terminal import Terminal
from tests.support.stack import Stack

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

BAR = 120.0
"""Seconds that the setup may take; a person reads and types in them, too."""


def answer(terminal: Terminal, question: str, text: str) -> None:
    """Wait for a question and answer it."""
    terminal.expect(question, "]: ")
    terminal.type(f"{text}\n")


def request_is_shown(terminal: Terminal) -> None:
    """Wait for the group of the request: its candidates with rewards, and the winner."""
    terminal.expect("One request through the whole chain", "Leave the engine")
    shown = terminal.output[terminal.output.rindex("One request through") :]
    assert "4 answers of embedded" in shown
    rewards = re.findall(r"^ *(?:▶ +)?[1-4] +(\d\.\d{3}) ", shown, re.MULTILINE)
    assert len(rewards) == 4, shown
    assert shown.count("▶") == 2  # the winner and the legend


def test_the_setup_runs_twice_and_changes_one_answer(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        environment = {
            **stack.environment,
            "AJET_CONSOLE__ENGINE__PORT": "0",
            "AJET_CONSOLE__PROXY__PORT": "0",
        }
        config = stack.home.config
        began = time.monotonic()
        with Terminal(["setup"], environment) as terminal:
            answer(terminal, "Which application", "openai")
            answer(terminal, "Which questions", "b")
            answer(terminal, "Which application", "curl")
            answer(terminal, "Which questions", "")
            answer(terminal, "What scores", "hooks")
            answer(terminal, "What trains", "2")
            terminal.expect("does not choose the model for a GPU")
            terminal.type("1\n")
            answer(terminal, "Do you rate", "off")
            assert not config.exists()
            answer(terminal, "Your answers", "")
            request_is_shown(terminal)
            assert "Paste into curl" in terminal.output
            terminal.type("\n")
            terminal.expect("Stopped: the engine and the proxy")
            assert terminal.wait() == 0
        first = time.monotonic() - began
        settings = load(config, environment={})
        assert (settings.console.application, settings.rating.mode) == ("curl", "off")
        assert settings.rewards.hooks == str(stack.home.root / "hooks")
        lines = config.read_text().splitlines()

        began = time.monotonic()
        with Terminal(["setup"], environment) as terminal:
            answer(terminal, "Answers in", "5")
            answer(terminal, "Do you rate", "hold")
            answer(terminal, "Your answers", "")
            request_is_shown(terminal)
            assert "it waited for your vote" in terminal.output
            terminal.type("y\n")
            terminal.expect("Left running: the engine and the proxy")
            assert terminal.wait() == 0
        second = time.monotonic() - began
        before = running(stack.home, "proxy")
        assert before is not None
        changed = set(config.read_text().splitlines()) - set(lines)
        assert len(changed) == 2, changed  # the mode and its comment
        assert load(config, environment={}).rating.mode == "hold"
        done = stack.run("setup", "rating=off", "--restart", "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert [one["reward"] is not None for one in result["request"]["group"]["candidates"]] == [
            True
        ] * 4
        after = running(stack.home, "proxy")
        assert after is not None
        assert (after.port, after.pid == before.pid) == (before.port, False)
        print(f"setup: {first:.1f} s, again with one change: {second:.1f} s")
        assert max(first, second) < BAR


@pytest.mark.parametrize(("end", "code"), [("INT", 130), ("TERM", 143), ("HUP", 129), ("", 130)])
def test_a_setup_that_is_stopped_half_way_writes_nothing(
    tmp_path: Path, end: str, code: int
) -> None:
    home = tmp_path / "home"
    with Stack(tmp_path / "other") as stack:
        environment = {**stack.environment, "AJET_CONSOLE_HOME": str(home)}
        with Terminal(["setup"], environment) as terminal:
            for question in ("Which application", "Which questions", "What scores", "What trains"):
                answer(terminal, question, "")
            terminal.expect("Do you rate")
            if end:
                terminal.child.send_signal(signal.Signals[f"SIG{end}"])
            else:  # the end of the input
                terminal.type("\x04")
            terminal.expect("The settings are as they were")
            assert terminal.wait() == code
    assert not home.exists()


def test_a_closed_pipe_is_an_error_after_everything_is_written(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "One?"}\n')  # the check of the dataset has something to say
    answers = [f"dataset={rows}", "rewards=built_in", "engine=laptop", "rating=off"]
    with Stack(tmp_path / "home") as stack:
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-m", "console", "setup", *answers, "--no-request"],
            env=stack.environment,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        os.close(writer)
        assert (done.returncode, "internal error" in done.stderr) == (1, False)
        assert f"The settings are in {stack.home.config}" in done.stderr
        assert load(stack.home.config, environment={}).mock.dataset == str(rows)
