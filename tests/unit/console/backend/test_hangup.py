"""A console whose terminal is gone."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.backend.hangup import watch_terminal
from core.journal.writer import Journal
from tests.support.checks import present
from tests.support.pty.terminal import Terminal
from tests.support.sample import group_events, stamp

LIMIT = 60.0


@pytest.mark.process
@pytest.mark.parametrize("which", ["console", "journal", "replay"])
def test_the_console_exits_when_its_terminal_closes_without_a_signal(
    which: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "AJET_CONSOLE_HOME": str(tmp_path / "home")}
    args = ["--attach", "http://127.0.0.1:9", "--read-only"]
    if which == "replay":
        journal = Journal(tmp_path / "journal.db")
        for seq, event in enumerate(group_events(1), 1):
            journal.append(stamp(event, seq))
        journal.close()
        args = ["journal", "replay", str(journal.path)]
    with Terminal(args, environment) as terminal:
        terminal.expect("Quit")
        terminal.hang_up()
        terminal.child.wait(LIMIT)
        assert terminal.child.returncode == -signal.SIGHUP


@pytest.mark.process
def test_the_console_exits_when_its_terminal_closes_and_sighup_is_ignored(tmp_path: Path) -> None:
    code = (
        "import signal, sys, threading\n"
        "from console.backend.hangup import watch_terminal\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "watch_terminal(0)\n"
        "print('watching', file=sys.stderr, flush=True)\n"
        "threading.Event().wait(60)\n"
    )
    far, near = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=near, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(near)
    try:
        assert child.stderr is not None
        assert child.stderr.readline() == b"watching\n"
        os.write(far, b"a key is no hangup\n")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        os.close(far)
        assert child.wait(LIMIT) == 128 + signal.SIGHUP
    finally:
        child.kill()
        child.wait(LIMIT)
        child.stderr.close()


def test_an_open_terminal_causes_no_exit() -> None:
    far, near = pty.openpty()
    thread = present(watch_terminal(near))
    assert thread.daemon
    os.write(far, b"x")
    thread.join(0.1)
    assert thread.is_alive()
