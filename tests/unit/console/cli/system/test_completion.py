"""Completion of the command line, as the shells' scripts ask for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checks import missing
from tests.support.commands.cli import Cli

ROOT = Path(__file__).resolve().parents[5]


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ajet-console proxy re", {"restart"}),
        ("ajet-console checkpoints save --h", {"--help", "--home"}),
        ("ajet-console --theme ", {"dark", "light", "ansi"}),
    ],
)
def test_a_line_is_completed(line: str, expected: set[str]) -> None:
    words = line.split()
    asked = {
        "_AJET_CONSOLE_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - (not line.endswith(" "))),
    }
    command = [sys.executable, "-c", "from console.cli import main; main()"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **asked},
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert {answer.partition(",")[2] for answer in done.stdout.split()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_the_program(cli: Cli, shell: str) -> None:
    assert not missing(cli.out("completion", shell), "ajet-console", "_AJET_CONSOLE_COMPLETE")


def test_another_shell_is_refused(cli: Cli) -> None:
    assert "Did you mean `bash`?" in cli.refused("completion", "basch")
