"""Werewolves in their small form: trained by games to the end, nothing left behind."""

import os
import re
from pathlib import Path

import pytest

from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


@pytest.mark.parametrize("games", [6, pytest.param(16, marks=pytest.mark.soak)])
def test_a_batch_of_games_is_played_and_trained(tmp_path: Path, games: int) -> None:
    """Play a batch of both deals: six games in a smaller form than the shipped one, or all 16."""
    folder, small = tmp_path / "tmp", tmp_path / "small.yaml"
    folder.mkdir()
    text = (ROOT / "examples" / "werewolves" / "small.yaml").read_text()
    assert "num_repeat: 8\n" in text
    small.write_text(text.replace("num_repeat: 8\n", f"num_repeat: {games // 2}\n"))
    config = () if games == 16 else ("--config", str(small))
    stored = {name: value for name, value in os.environ.items() if not name.startswith("STATIC_")}
    done = forked.run(
        ["--updates", "1", *config],
        env={**stored, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        timeout=220,
        module="examples.werewolves",
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    match = re.search(
        rf"^step 1: wolves win (\d\.\d\d)  village win (\d\.\d\d) of {games} games, \d\.\d days; "
        r"moves read: werewolf (\d\.\d\d)  seer (\d\.\d\d)$",
        done.stdout,
        re.M,
    )
    assert match is not None, done.stdout
    wolves, village, wolf_moves, seer_moves = map(float, match.groups())
    assert wolves + village == pytest.approx(1.0, abs=0.011)
    # Some moves cannot be read: they abstain. Of a seer's few, it may be all.
    assert 0 < wolf_moves < 1
    assert 0 <= seer_moves < 1
    assert "claims left 0" in done.stdout
    assert not list(folder.iterdir())
