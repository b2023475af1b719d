"""History in a real terminal: a run opens as of its end, and the present returns."""

import os
from pathlib import Path

import pytest

from core.journal.writer import Journal
from tests.support.pty.terminal import Terminal
from tests.support.runs import run_events
from tests.support.sample import stamp

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def test_a_run_opens_as_of_its_end_and_the_present_returns(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    for seq, event in enumerate([*run_events(1), *run_events(2, first_step=4)], 1):
        journal.append(stamp(event, seq))
    journal.close()
    before = path.read_bytes()
    environment = {**os.environ, "AJET_CONSOLE_HOME": str(tmp_path / "home")}
    with Terminal(["journal", "replay", str(path), "--screen", "history"], environment) as console:
        console.expect("Run 2")
        console.type("j")
        console.expect("Run 1")
        console.type("\r")
        console.expect("Ctrl+Q returns to the present")
        console.expect("PAST RUN 1 end", "Back")
        console.type("\x11")
        console.expect("REPLAY end")
        console.type("\x11")
        assert console.wait() == 0
    assert path.read_bytes() == before
