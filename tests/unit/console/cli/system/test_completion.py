"""Completion of the command line, as the shells' scripts ask for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.cli import Cli, missing

ROOT = Path(__file__).resolve().parents[5]


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ajet-console proxy-re", {"proxy-restart"}),
        ("ajet-console checkpoints save --h", {"--help", "--home"}),
        ("ajet-console --theme ", {"dark", "light", "ansi"}),
    ],
)
def test_a_line_is_completed(line: str, expected: set[str], tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-c", "from console.cli import main; main()"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **asked}, check=True, timeout=60)
    assert set(filter(None, map(str.strip, answer.read_text().split("\013")))) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_names_the_program(cli: Cli, shell: str) -> None:
    assert not missing(cli.out("completion", shell), "ajet-console", "_ARGCOMPLETE")


def test_another_shell_is_refused(cli: Cli) -> None:
    assert "Did you mean `bash`?" in cli.refused("completion", "basch")
