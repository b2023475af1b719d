"""A console on a real terminal: stopped and continued, and keys typed ahead of its screen."""

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.screens.rate.ballot import shown_order
from tests.support.pty.terminal import Terminal

ROOT = Path(__file__).parents[3]
CTRL_Q, CTRL_Z, F2, F3 = "\x11", "\x1a", "\x1bOQ", "\x1bOR"
CONTROLLING = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the controlling one of the new session, as a login does."""

pytestmark = pytest.mark.process


class Session(Terminal):
    """A command on a pseudo terminal that controls it."""

    def __init__(self, command: list[str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.child = subprocess.Popen(
            [sys.executable, "-c", CONTROLLING, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "PS1": "ready> "},
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.output = ""

    def until(self, check: Callable[[], object]) -> None:
        """Read on until `check` holds."""
        end = time.monotonic() + 100
        while not check():
            assert time.monotonic() < end, self.output[-2000:]
            assert self.child.poll() is None, self.output[-2000:]
            self.read(0.05)


def console_command(tmp_path: Path) -> list[str]:
    return [sys.executable, "-m", "tests.support.pty.console", str(tmp_path / "ordered.json")]


def test_a_console_accepts_keys_after_stop_and_continue(tmp_path: Path) -> None:
    with Session(console_command(tmp_path)) as session:
        session.expect("to rate")
        for _ in range(2):
            session.child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, session.child.pid, os.WSTOPPED)
            session.child.send_signal(signal.SIGCONT)
            session.expect("to rate")
        session.type(F3)
        session.expect("Question 1")
        session.type(CTRL_Q)
        assert session.wait(30) == 0


def test_ctrl_z_without_a_shell_repaints_and_continues(tmp_path: Path) -> None:
    with Session(console_command(tmp_path)) as session:
        session.expect("NEWEST GROUPS")
        session.type(CTRL_Z)
        session.expect("NEWEST GROUPS")  # a heading that no tick of the clock repaints
        session.type(CTRL_Q)
        assert session.wait(30) == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell with job control")
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_brings_it_back(tmp_path: Path) -> None:
    command = " ".join(console_command(tmp_path))
    with Session(["bash", "--norc", "--noprofile", "-i"]) as shell:
        shell.expect("ready>")
        # As `make run` does: the console is not the process the shell waits for.
        shell.type(f"sh -c '{command}; echo ended $?'\r")
        shell.expect("to rate")
        shell.type(CTRL_Z)
        shell.expect("Stopped")
        shell.type("echo $((40 + 2))\r")
        shell.expect("42")
        shell.type("fg\r")
        shell.expect("to rate")
        shell.type(F3)
        shell.expect("Question 1")
        shell.type(CTRL_Q)
        shell.expect("ended 0")
        shell.type("exit\r")
        assert shell.wait(30) == 0


def sent(tmp_path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Commands so far: name and arguments."""
    file = tmp_path / "ordered.json"
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()]


def votes(tmp_path: Path) -> list[tuple[str, str, Any]]:
    return [
        (args["group_id"], args["rating"], args.get("order"))
        for name, args in sent(tmp_path)
        if name == "group.rate"
    ]


def order_of(number: int) -> tuple[int, ...]:
    return shown_order(f"g{number:04}", range(4))


EXPECTED = [
    ("g0001", "best", [order_of(1)[1]]),
    ("g0002", "ranking", [order_of(2)[place] for place in (2, 0, 3, 1)]),
    ("g0003", "scores", None),
    ("g0004", "best", [order_of(4)[0]]),
    ("g0006", "tie", None),
]
KEYS = "2\r3142s90361\rktt"
"""Best, ranking, scores, best, the fifth group to the end of the queue, tie."""


@pytest.mark.parametrize("at_once", [True, False])
def test_votes_typed_ahead_reach_the_right_group_once(at_once: bool, tmp_path: Path) -> None:
    """Nothing is read meanwhile, as over a slow line: no key waits for what it is meant for."""
    (tmp_path / "ordered.json").touch()
    with Session(console_command(tmp_path)) as session:
        session.expect("to rate")
        for keys in [F3 + KEYS] if at_once else [F3, *KEYS]:
            session.type(keys)
        session.until(lambda: len(votes(tmp_path)) >= len(EXPECTED))
        session.type(CTRL_Q)
        assert session.wait(30) == 0
    assert votes(tmp_path) == EXPECTED


def test_keys_for_a_dialog_never_reach_the_screen_below(tmp_path: Path) -> None:
    (tmp_path / "ordered.json").touch()
    with Session(console_command(tmp_path)) as session:
        session.expect("to rate")
        session.type(F2 + "jx3yjm")  # abort the second with a reason, mark the next
        session.until(lambda: "group.mark" in dict(sent(tmp_path)))
        session.type(CTRL_Q)
        assert session.wait(30) == 0
    names = [name for name, _ in sent(tmp_path)]
    assert dict(sent(tmp_path))["group.abort"]["reason"] == "debugging"
    assert (names.count("group.abort"), names.count("group.mark")) == (1, 1)
    assert "group.rate" not in names
