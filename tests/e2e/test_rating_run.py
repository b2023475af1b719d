"""Groups rated at a real terminal with fast keys: each vote is the reward the server got."""

import sys
from pathlib import Path

import pytest

from tests.support.pty.rating_run import FAST, edit_run, rating_run
from tests.support.pty.screen import Grid

pytestmark = pytest.mark.timeout(240)


@pytest.mark.process
@pytest.mark.parametrize("confirm", ["none", "enter"])
async def test_each_vote_lands_as_the_reward_the_server_received(
    tmp_path: Path, confirm: str
) -> None:
    outcome = await rating_run(
        tmp_path / "home", 18, FAST, repeats=1.0, window=5.0, confirm=confirm
    )
    assert len(outcome.expected) == 18
    assert outcome.differing() == []
    assert outcome.duplicates == 0
    assert outcome.undone >= 1
    assert outcome.second_votes >= 1  # shown and rated again; none of their rewards was sent
    assert len(outcome.kinds) >= 3


@pytest.mark.process
async def test_an_answer_is_edited_in_an_editor_that_takes_the_terminal(tmp_path: Path) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, time\n"
        "print('this is the editor', flush=True)\n"
        "time.sleep(0.6)\n"  # long enough for a flush that must not paint
        "with open(sys.argv[1], 'a') as file: file.write(' and a spoon')\n"
    )
    rows, group = await edit_run(tmp_path / "home", f"{sys.executable} {script}")
    assert "✎ edited" in "".join(rows)
    assert not any("this is the editor" in row for row in rows)
    assert group.rating is not None
    index = group.rating.order[0]
    assert group.edited_index == index
    assert group.edited == group.candidates[index].text + " and a spoon"
    assert [candidate.reward for candidate in group.candidates] == [
        float(candidate.index == index) for candidate in group.candidates
    ]


def test_the_grid_matches_a_terminal() -> None:
    grid = Grid(12, 3)
    grid.feed("\x1b[?1049h\x1b[2J\x1b[2;3H\x1b[1;31mred\x1b[0m漢字!\x1b]0;title\x07")
    assert grid.rows == ["", "  red漢字!", ""]
    grid.feed("\x1b[2;4HE\x1b[K\r\nend\x1b[")
    grid.feed("1;1Htop")
    assert grid.rows == ["top", "  rE", "end"]
    grid.feed("\x1b[3;10Hoverflowing\x1b[1A\x1b[2Dx")
    assert grid.rows[2] == "end      ove"
