"""The console is stopped and continued on a real terminal, then still takes keys and ends."""

import fcntl
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.pty.terminal import Terminal

ROOT = Path(__file__).parents[3]
CTRL_Q, CTRL_Z, F3 = "\x11", "\x1a", "\x1bOR"
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
