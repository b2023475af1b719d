"""The cocktail: rewards are right about answers good, bad and hostile, the mix is as documented."""

import contextlib
import os
import re
import sys
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from examples.cocktail import limited
from examples.cocktail.kinds import KINDS, Question
from examples.cocktail.limited import run
from examples.cocktail.symbols import last_value, value_of
from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 7.", Fraction(7)),
        ("3 + 4 = 7", Fraction(7)),
        ("It is 14/2!", Fraction(7)),
        ("(1+2)*3 I think", Fraction(9)),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("-3", Fraction(-3)),
        ("no idea", None),
        ("1/0", None),
        ("9" * 5000, None),
        ("2**9**9**9", None),
    ],
)
def test_the_last_expression_of_a_text(text: str, value: Fraction | None) -> None:
    assert last_value(text) == value


@pytest.mark.parametrize("text", ["__import__('os')", "9**9", "a + 1", "'x'", "1 if 1 else 2", ""])
def test_only_arithmetic_has_a_value(text: str) -> None:
    assert value_of(text) is None


SUM = Question("", "", "3 + 4")


@pytest.mark.parametrize(
    ("kind", "answer", "reward"),
    [
        ("maths", "That makes 7.", 1.0),
        ("maths", "That makes 8.", 0.0),
        ("maths", "3 + 4 = 7", 1.0),
        ("maths", "It is 14/2.", 1.0),
        ("maths", "It is 3 + 4.", 0.0),
        ("maths", "4+3", 0.0),
        ("maths", "(3 + 4 + 0)", 0.0),
        ("code", "3 + 4", 0.0),
        ("terminal", "3 + 4 files", 0.0),
        ("code", "It is 7.", 1.0),
        ("code", "It is 6.", 0.0),
        ("code", "```python\nx = sum([3, 4])\n```", 1.0),
        ("code", "```python\nprint('right')\nraise SystemExit\n```", 0.0),
        ("code", "```python\nwhile True: pass\n```", 0.0),
        ("code", "```python\nx = 'a' * 10**10\n```", 0.0),
        ("terminal", "It is 7!", 1.0),
        ("terminal", "```sh\nfor i in 1 2 3 4 5 6 7; do touch $i; done\n```", 1.0),
        ("terminal", "```sh\nmkdir 1 2 3 4 5 6 7\n```", 0.0),
        ("terminal", "6", 0.0),
        ("terminal", "-7", 0.0),
        ("terminal", "nothing", 0.0),
    ],
)
def test_rewards_of_answers(
    kind: str, answer: str, reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "CPU_SECONDS", 1)  # the endless one uses all of them
    assert KINDS[kind].reward(SUM, answer) == reward


def test_a_waiting_program_is_killed_with_its_children(tmp_path: Path) -> None:
    assert run(["/bin/sh", "-c", "sleep 600 & sleep 600"], tmp_path, seconds=0.5) is None


def test_processes_that_left_the_group_are_killed_too(tmp_path: Path) -> None:
    program = (
        "import os,time\npid = os.fork()\nif pid: print(pid)\nelse: os.setsid(); time.sleep(60)"
    )
    result = run([sys.executable, "-S", "-c", program], tmp_path)
    assert result is not None
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(result)).wait(20)  # psutil.TimeoutExpired when it still runs


def test_a_program_does_not_inherit_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = run(["/bin/sh", "-c", "env; pwd"], tmp_path)
    assert result is not None
    assert "sk-secret" not in result
    assert str(tmp_path) in result


def test_the_mix_follows_the_shares(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = forked.run(["--updates", "4"], env=environment, timeout=200, module="examples.cocktail")
    assert done.returncode == 0, done.stdout + done.stderr  # it measures the mix itself
    assert "shares are now maths 20 %  code 30 %  terminal 50 %" in done.stdout
    assert re.search(r"^after: .* at most [0-5]\.\d points off$", done.stdout, re.M)
    assert "claims left 0" in done.stdout
    assert not list(tmp_path.iterdir())
