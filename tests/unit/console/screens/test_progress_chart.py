"""The chart of the looks: separate series, intervals, checkpoints, legend."""

import pytest
from rich.cells import cell_len

from console.screens.progress.chart import LookSeries, look_chart, look_lines, look_series
from console.screens.progress.model import LookPoint
from core.events import Checkpoint, CheckpointsListed, EngineChanged
from core.state import Progress, Server
from tests.support.checks import missing
from tests.support.groups import text_of
from tests.support.looks import SERVER, baseline, look, looks, verdict
from tests.support.sample import NOW, sample_events, state_of

POINTS = (
    LookPoint(1, 0.4, 0.3, 0.5, is_baseline=True, is_current=True),
    LookPoint(5, 0.5, 0.4, 0.6, is_baseline=False, is_current=True),
    LookPoint(9, 0.8, 0.7, 0.9, is_baseline=False, is_current=True),
)


TRAINING = ((1, 0.2), (5, 0.3), (9, 0.4))


def drawn(series: LookSeries, width: int = 60, height: int = 16) -> list[str]:
    return ["".join(text for text, _ in line) for line in look_chart(series, width, height)]


def signs(rows: list[str], sign: str) -> list[tuple[int, int]]:
    """Return row and column of a sign in the plot."""
    return [(y, x) for y, row in enumerate(rows) for x, one in enumerate(row) if one == sign]


def test_the_series_are_separate_and_named() -> None:
    series = LookSeries(POINTS, TRAINING, ((5, 0.25), (9, 1.0)), (5,))
    text = "\n".join(drawn(series, 120))
    assert not missing(
        text,
        "◉ baseline",
        "● probe with its interval",
        "⠤⠤ training reward",
        "◆ human win rate (right)",
        "▲ checkpoint",
    )
    assert "earlier comparison" not in text
    rows = drawn(series, 120)
    assert len(signs(rows[:-2], "◆")) == 2
    assert any(0x2800 < ord(one) < 0x2900 for row in rows[:-2] for one in row)


def test_win_rates_have_an_axis_of_their_own_from_0_to_1() -> None:
    rows = drawn(LookSeries(POINTS, human=((1, 0.0), (9, 1.0))), height=12)
    assert rows[0].startswith(" 0.90 ")
    assert rows[0].rstrip().endswith("1.00")
    last = next(row for row in rows if row.startswith(" 0.30 "))
    assert last.rstrip().endswith("0.00")
    assert signs(rows[:-2], "◆") == [(0, 53), (rows.index(last), 6)]


def test_looks_by_comparison_use_the_axis_of_win_rates() -> None:
    rows = drawn(LookSeries(POINTS, TRAINING, wins=True), 90)
    assert rows[0].startswith(" 0.40 "), "training reward at the left"
    assert rows[0].rstrip().endswith("1.00")
    assert "win rate of the probe (right)" in rows[-1]


def test_checkpoints_are_marked_on_the_axis() -> None:
    rows = drawn(LookSeries(POINTS, checkpoints=(0, 5, 9, 40)))
    line = next(row for row in rows if "───" in row)
    assert [at - 6 for at, one in enumerate(line) if one == "▲"] == [27, 53], "in range only"
    low = drawn(LookSeries(POINTS, checkpoints=(5,)), height=6)
    assert not any("───" in row for row in low), "a low chart has no line for them"


def test_an_earlier_comparison_has_another_sign() -> None:
    old = LookPoint(3, 0.4, 0.3, 0.5, is_baseline=False, is_current=False)
    rows = drawn(LookSeries((old, *POINTS[1:])))
    assert len(signs(rows[:-1], "○")) == 1
    assert "○ earlier comparison" in "\n".join(rows)


@pytest.mark.parametrize(("width", "height"), [(60, 16), (74, 7), (44, 5), (150, 40)])
def test_the_chart_keeps_its_size(width: int, height: int) -> None:
    series = LookSeries(POINTS, TRAINING, ((5, 0.25),), (5,))
    rows = drawn(series, width, height)
    assert rows
    assert len(rows) <= height
    assert max(cell_len(row) for row in rows) <= width


@pytest.mark.parametrize(("width", "height"), [(60, 2), (15, 10), (0, 0)])
def test_without_room_there_is_no_chart(width: int, height: int) -> None:
    assert (drawn(LookSeries(POINTS, TRAINING), width, height), drawn(LookSeries())) == ([], [])


def test_the_series_come_from_the_state() -> None:
    saved = tuple(
        Checkpoint(name=f"c{at}", step=at, at=NOW, bytes=1, damaged=at == 4) for at in (4, 2)
    )
    listed = CheckpointsListed(server=SERVER, checkpoints=saved)
    state = state_of(*sample_events(), *looks(), listed)
    series = look_series(state.progress[SERVER], state.servers[SERVER])
    assert [one.step for one in series.looks] == [1, 4, 6, 8, 10, 12]
    steps = state.servers[SERVER].steps
    assert series.training == tuple((step.step, step.auto_mean) for step in steps)
    assert series.human == ()
    assert series.checkpoints == (3,), "without the damaged one, at the step that it samples"
    assert not series.wins


def shown(progress: Progress, server: Server | None, may_look: bool) -> str:
    return text_of(look_lines(progress, server, 70, 10, may_look))


def test_the_section_says_what_will_appear() -> None:
    nothing = shown(Progress(), None, False)
    assert nothing == "LOOKS  by global step\nThe curve of the looks starts with the first one"
    assert shown(Progress(), None, True).endswith(": l takes it now")
    state = state_of(*sample_events())
    beside = shown(Progress(), state.servers[SERVER], True)
    assert not missing(beside, "l takes it now", "training reward")
    assert beside.count("\n") < 10


def test_the_title_has_the_newest_value_of_each_series() -> None:
    state = state_of(*sample_events(), *looks())
    title = shown(state.progress[SERVER], state.servers[SERVER], False)
    assert title.startswith("LOOKS  probe 0.62 (0.55 to 0.69)  training 0.67\n")
    wins = state_of(
        EngineChanged(server=SERVER, state="ROLLING", step=3),
        baseline(mode="wins", mean=0.5),
        look("l1", 3, 0.64, mode="wins", verdict=verdict(reference=0.5)),
    )
    server = Server(name=SERVER, url="")
    title = shown(wins.progress[SERVER], server, False)
    assert title.startswith("LOOKS  win rate 0.64 (0.57 to 0.71)\n")


def test_one_look_alone_is_drawn() -> None:
    rows = drawn(LookSeries(POINTS[:1]))
    assert len(signs(rows[:-1], "◉")) == 1
    assert "step 1" in "\n".join(rows)
