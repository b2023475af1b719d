"""The parts from which screens are built: plots and tables."""

import pytest

from console.text.lines import Line, line_width
from console.ui.curve import Point, curve, thin
from console.ui.plot import LABEL, Axis, Plot, sparkline
from console.ui.table import Column, Table
from tests.support.groups import rows_of

UNIT = Axis(0.0, 1.0)


def test_a_line_runs_from_corner_to_corner() -> None:
    plot = Plot(2, 1, (1, 2))
    plot.line([(1, 0.0), (2, 1.0)], UNIT, "$curve")
    assert rows_of(plot.lines(None)) == [" " * LABEL + "⡠⠊"]


def test_a_dashed_line_has_gaps_and_where_lines_meet_the_style_is_bold() -> None:
    plot = Plot(8, 1, (0, 15))
    plot.line([(0, 1.0), (15, 1.0)], UNIT, "$curve")
    plot.line([(0, 0.0), (15, 0.0)], UNIT, "$winner", dashed=True)
    (row,) = plot.lines(None)
    assert row[1:] == (("⣉⣉", "bold"), ("⠉⠉", "$curve")) * 2


def test_a_single_value_is_visible() -> None:
    plot = Plot(4, 1, (3, 3))
    plot.line([(3, 0.0)], UNIT, "$curve")
    assert "⣀" in rows_of(plot.lines(None))[0]


def test_signs_cover_dots_and_signs_behind_do_not() -> None:
    plot = Plot(3, 1, (0, 5))
    plot.line([(0, 0.0), (3, 0.0)], UNIT, "$curve")
    plot.sign(0, 0, "◆", "$winner")
    for column in range(3):
        plot.sign(column, 0, "┊", "$muted", behind=True)
    assert rows_of(plot.lines(None)) == [" " * LABEL + "◆⣀┊"]


def test_a_band_shades_the_cells_within_it() -> None:
    plot = Plot(2, 4, (1, 2))
    plot.band([(1, 0.0, 0.4), (2, 0.0, 0.4)], UNIT)
    shaded = ["$band" in line[-1][1] for line in plot.lines(None)]
    assert shaded == [False, False, True, True]


def test_both_axes_name_their_ends() -> None:
    rows = rows_of(Plot(10, 3, (0, 1)).lines(UNIT, Axis(0.0, 40.0)))
    assert (rows[0].split(), rows[1].split()) == (["1.00", "40"], [])
    assert rows[2].split() == ["0.00", "0"]


def test_the_foot_has_the_first_legend_with_room() -> None:
    plot = Plot(20, 3, (1, 9))
    legends: list[Line] = [(("a long legend beyond", ""),), (("short", ""),)]
    foot = plot.foot("step 1", "9", *legends)
    assert rows_of([foot])[0].split() == ["step", "1", "short", "9"]
    assert line_width(foot) == LABEL + 20
    assert rows_of([plot.foot("step 1", "9")])[0].endswith("9")


@pytest.mark.parametrize("count", [1, 2, 3, 77, 1000])
def test_a_curve_accepts_any_number_of_points(count: int) -> None:
    points = [Point(step, (step * 37 % 11) / 11, 0.1) for step in range(1, count + 1)]
    lines = curve(points, 60, 8)
    assert (len(lines), {line_width(line) for line in lines}) == (8, {60})
    assert len(thin(points, 54)) <= 54


def test_equal_rewards_still_have_an_axis() -> None:
    axis = Axis.around(0.5, 0.5)
    assert axis.low < 0.5 < axis.high
    assert len(curve([Point(1, 0.5, 0.0), Point(2, 0.5, 0.0)], 30, 5)) == 5


def test_thinning_keeps_the_last_point() -> None:
    points = [Point(step, float(step), 0.0) for step in range(100)]
    assert thin(points, 10)[-1] == points[-1]


def test_a_sparkline_shows_nothing_as_dots() -> None:
    assert (sparkline([0, 0]).plain, sparkline([0, 1, 2]).plain) == ("··", "·▄█")


TABLE: Table[str] = Table(
    (
        Column("name", 6, lambda row: row, most=20),
        Column("size", 4, lambda row: str(len(row)), "bold", right=True),
        Column("first", 5, lambda row: (row[:1], "$muted"), rank=1),
        Column("last", 5, lambda row: row[-1:], rank=2),
        Column("text", 8, lambda row: row * 9, most=99),
    ),
    start=" ",
)


def text(line: Line) -> str:
    return "".join(piece for piece, _ in line)


@pytest.mark.parametrize("width", [21, 27, 33, 40, 60, 99])
def test_the_head_and_each_row_fill_the_width(width: int) -> None:
    assert line_width(TABLE.head(width)) == width
    assert {line_width(TABLE.row(row, width)) for row in ("", "ab", "日本" * 30)} == {width}


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (33, ["name", "size", "first", "last", "text"]),
        (32, ["name", "size", "first", "text"]),
        (26, ["name", "size", "text"]),
    ],
)
def test_columns_of_a_high_rank_are_left_out_first(width: int, titles: list[str]) -> None:
    assert text(TABLE.head(width)).split() == titles


def test_flexible_columns_share_what_is_left_up_to_their_most() -> None:
    without = ("first", "last")
    sizes = [[size for _, size in TABLE.fitted(width, without)] for width in (27, 67)]
    assert sizes == [[10, 4, 10], [20, 4, 40]]


def test_a_cell_has_the_tone_of_its_column_or_its_own() -> None:
    line = TABLE.row("abc", 60)
    assert ("   3", "bold") in line
    assert ("a    ", "$muted") in line
