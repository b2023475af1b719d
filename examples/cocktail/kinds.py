"""The three kinds of tasks: their questions, and the checks of their answers."""

import re
import secrets
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from examples.cocktail.limited import run
from examples.cocktail.symbols import last_value, value_of

_BLOCK = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """One task.

    Attributes:
        told: The system message.
        text: What is asked.
        wanted: The expression the answer must come to.
    """

    instruction: str
    text: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tasks: a random question, and the reward of an answer, 0 to 1."""

    draw: Callable[[Random], Question]
    reward: Callable[[Question, str], float]


def maths_reward(question: Question, answer: str) -> float:
    """Return 1 when the last expression is new and has exactly the same value."""
    return float(last_value(answer, question.wanted) == value_of(question.wanted))


def code_reward(question: Question, answer: str) -> float:
    """Return 1 when the program in the answer sets `x` to the expected value."""
    block = _BLOCK.findall(answer)
    value = last_value(answer, question.wanted)
    if not block and value is None:
        return 0.0
    program = block[-1] if block else f"x = {value}"
    seal = secrets.token_hex(8)  # unknown to the program: it cannot say itself that it is right
    check = f"\nassert x == {question.wanted}\nprint('{seal}')\n"
    with tempfile.TemporaryDirectory(prefix="cocktail-") as folder:
        output = run([sys.executable, "-I", "-S", "-"], Path(folder), program + check)
    return float(output is not None and output.endswith(f"{seal}\n"))


def terminal_reward(question: Question, answer: str) -> float:
    """Return 1 when the shell commands create the expected number of files."""
    block = _BLOCK.findall(answer)
    value = last_value(answer, question.wanted)
    if block:
        commands = block[-1]
    elif value is not None and value.denominator == 1 and 0 <= value <= 100:
        commands = "".join(f"touch file{n}\n" for n in range(int(value)))
    else:
        return 0.0
    with tempfile.TemporaryDirectory(prefix="cocktail-") as folder:
        if run(["/bin/sh", "-s"], Path(folder), commands) is None:
            return 0.0
        files = sum(file.is_file() for file in Path(folder).iterdir())
    return float(files == value_of(question.wanted))


def _questions(instruction: str, text: str, sign: str, most: int) -> Callable[[Random], Question]:
    def draw(chance: Random) -> Question:
        high, low = sorted((chance.randint(1, most), chance.randint(1, most)), reverse=True)
        wanted = f"{high} {sign} {low}"
        return Question(instruction, text.format(wanted), wanted)

    return draw


_maths = _questions("Give a number or an expression.", "What is {}?", "+", 9)
_code = _questions("Give x, or Python code that sets x.", "What is {}?", "-", 9)
_terminal = _questions("Give a number, or shell commands.", "Make {} files.", "+", 5)
KINDS: Final = {
    "maths": Kind(_maths, maths_reward),
    "code": Kind(_code, code_reward),
    "terminal": Kind(_terminal, terminal_reward),
}
"""Name -> kind."""
