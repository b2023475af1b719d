"""Werewolves in their small form: trained by games to the end, nothing left behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def fewer_games(folder: Path) -> Path:
    """The small form with two games of a deal instead of eight; all else is as shipped."""
    tree = yaml.safe_load((ROOT / "examples" / "werewolves" / "small.yaml").read_text("utf-8"))
    tree["ajet"]["rollout"] |= {"num_repeat": 2, "max_env_worker": 8}
    path = folder / "fewer.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def test_a_batch_of_games_is_played_and_trained(tmp_path: Path) -> None:
    config, own = fewer_games(tmp_path), tmp_path / "own"
    own.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STATIC_")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.werewolves", "--config", str(config), "--updates", "1"],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(own)},
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    told = re.search(
        r"^step 1: wolves win (\d\.\d\d)  village win (\d\.\d\d) of 4 games, \d\.\d days; "
        r"moves read: werewolf (\d\.\d\d)  seer (\d\.\d\d)$",
        done.stdout,
        re.M,
    )
    assert told is not None, done.stdout
    wolves, village, wolf_read, seer_read = map(float, told.groups())
    assert wolves + village == pytest.approx(1.0, abs=0.011)
    assert 0 < wolf_read < 1  # some moves cannot be read: they abstain
    assert seer_read < 1  # it has few moves in so few games: none of them may be readable
    assert "claims left 0" in done.stdout
    assert not list(own.iterdir())
