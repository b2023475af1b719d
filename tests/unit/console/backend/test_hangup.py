"""A console whose terminal is gone; another package `mock` in the environment."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.backend.hangup import watch_terminal
from console.backend.mock_process import REMEDY, mock_collision
from console.cli import main
from console.doctor import examine
from console.doctor.finding import CheckContext, Finding
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import Settings
from tests.support.checks import present
from tests.support.pty.terminal import Terminal
from tests.support.sample import group_events, stamp

LIMIT = 60.0


@pytest.mark.process
@pytest.mark.parametrize("which", ["console", "replay"])
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


def _install_pypi_mock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "mock-5.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mock\nVersion: 5.2.0\n")
    monkeypatch.syspath_prepend(str(folder))


def _findings(root: Path) -> dict[tuple[str, str], Finding]:
    result = asyncio.run(examine(CheckContext(home=Home(root), settings=Settings())))
    return {(one.area, one.name): one for one in result}


def test_without_another_package_mock_there_is_no_collision(tmp_path: Path) -> None:
    assert mock_collision() == ""
    assert ("packages", "mock") not in _findings(tmp_path)


def test_the_doctor_warns_of_pypis_mock_and_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install_pypi_mock(tmp_path, monkeypatch)
    warning = _findings(tmp_path / "home")["packages", "mock"]
    assert warning.level == "warn"
    assert "`mock` 5.2.0" in warning.text
    assert warning.todo == REMEDY


def test_another_package_mock_that_hides_ours_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "mock" / "__init__.py"
    foreign.parent.mkdir()
    foreign.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mock", raising=False)
    assert str(foreign) in mock_collision()


def test_the_mock_command_first_warns_in_one_line(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install_pypi_mock(tmp_path, monkeypatch)
    assert main(["run", "mock"]) == 1  # there is no proxy to ask
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("ajet-console: warning: PyPI's package `mock` 5.2.0")
    assert REMEDY in first
