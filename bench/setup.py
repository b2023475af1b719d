"""Seconds that `ajet-console setup` takes: by itself, and with a person who reads all of it.

    .venv/bin/python -m bench.setup

A real terminal, an empty home, the laptop engine, hooks with the example, mode answer first; then
the setup again, with one changed answer. The reader reads everything but the lines to paste, at 200
words a minute, and takes two seconds for each answer. The processes take free ports and are ended.
"""

import tempfile
import time
from pathlib import Path

from bench.bars import Verdicts
from core.runtime.home import running
from tests.support.pty.terminal import Terminal
from tests.support.stack import Stack

BAR = 120.0
WORDS_PER_SECOND = 200 / 60
TYPING = 2.0
"""Seconds for an answer that was decided."""

Answers = tuple[tuple[str, str], ...]
"""What is waited for, and what is typed then."""

FIRST: Answers = (
    ("Which application", "openai"),
    ("Which questions", "shipped"),
    ("What scores", "hooks"),
    ("What trains", "laptop"),
    ("Do you rate", "answer_first"),
    ("Your answers", ""),
    ("Leave the engine", ""),
)
AGAIN: Answers = (
    ("Answers in", "5"),
    ("Do you rate", "off"),
    ("Your answers", ""),
    ("Leave the engine", ""),
)


def words(text: str) -> int:
    """Return the number of words that a person reads."""
    text, _, paste = text.partition("Paste into")
    return len(text.split()) + len(paste.partition("Leave")[2].split())


def seconds(stack: Stack, answers: Answers, *, reads: bool) -> float:
    """Run the setup once and return its seconds."""
    environment = {
        **stack.environment,
        "AJET_CONSOLE__ENGINE__PORT": "0",
        "AJET_CONSOLE__PROXY__PORT": "0",
    }
    with Terminal(["setup"], environment, width=100, height=40) as terminal:
        for question, answer in answers:
            mark = len(terminal.output)
            terminal.expect(question, "] " if question.startswith("Leave") else "]: ")
            if reads:
                time.sleep(words(terminal.output[mark:]) / WORDS_PER_SECOND + TYPING)
            terminal.type(f"{answer}\n")
        terminal.expect("Stopped: the engine and the proxy")
        terminal.wait()
        return time.monotonic() - terminal.began


def main() -> None:
    """Measure the setup without and with a reader, each twice."""
    verdicts = Verdicts()
    for reads in (False, True):
        name = "reader" if reads else "machine"
        with (
            tempfile.TemporaryDirectory() as folder,
            Stack(Path(folder) / "home", forks=False) as stack,
        ):
            verdicts.at_most(f"setup_{name}", seconds(stack, FIRST, reads=reads), BAR, "s")
            verdicts.at_most(f"again_{name}", seconds(stack, AGAIN, reads=reads), BAR, "s")
            left = [role for role in ("engine", "proxy") if running(stack.home, role)]
            verdicts.at_most(f"processes_left_{name}", len(left), 0, "processes")
    verdicts.close()


if __name__ == "__main__":
    main()
