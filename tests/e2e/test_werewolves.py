"""Werewolves in their small form: trained by games to the end, nothing left behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def test_a_batch_of_games_is_played_and_trained(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STATIC_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.werewolves", "--updates", "1"],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    told = re.search(
        r"^step 1: wolves win (\d\.\d\d)  village win (\d\.\d\d) of 16 games, \d\.\d days; "
        r"moves read: werewolf (\d\.\d\d)  seer (\d\.\d\d)$",
        done.stdout,
        re.M,
    )
    assert told is not None, done.stdout
    wolves, village, *read = map(float, told.groups())
    assert wolves + village == pytest.approx(1.0, abs=0.011)
    assert all(0 < one < 1 for one in read)  # some moves cannot be read: they abstain
    assert "claims left 0" in done.stdout
    assert not list(tmp_path.iterdir())
