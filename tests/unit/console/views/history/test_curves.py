"""Curves of engine runs over each other."""

from console.text.lines import line_width
from console.views.history.curves import RunCurve, overlay
from core.state import RunPoint
from tests.support.groups import rows_of


def curve(*means: float, label: str = "a", first: int = 1) -> RunCurve:
    return RunCurve([RunPoint(first + at, mean) for at, mean in enumerate(means)], label)


def test_all_lines_have_the_width_and_the_ends_are_named() -> None:
    lines = overlay([curve(0.1, 0.4, 0.9), curve(0.2, 0.2, label="b")], 60, 9)
    assert len(lines) == 9
    assert {line_width(one) for one in lines} == {60}
    rows = rows_of(lines)
    assert rows[0].startswith(" 0.90")
    assert rows[-1].split() == ["step", "1", "━━", "a", "┅┅", "b", "3"]


def test_the_second_curve_is_dashed_and_has_another_colour() -> None:
    whole = overlay([curve(0.5, 0.5)], 60, 5)
    dashed = overlay([curve(0.1, 0.1), curve(0.5, 0.5, label="b")], 60, 9)
    dots = sum(cell > "\u2800" for row in rows_of(whole)[:-1] for cell in row)
    assert dots == 54
    second = [piece for line in dashed[:-1] for piece, tone in line if tone == "$winner"]
    assert 0.4 * dots < sum(len(one) for one in second) < 0.7 * dots
    assert [piece for line in dashed[:-1] for piece, tone in line if tone == "$curve"]


def test_a_single_point_is_drawn_and_a_flat_curve_has_an_axis() -> None:
    rows = rows_of(overlay([curve(0.453)], 40, 7))
    assert any(one > "\u2800" for row in rows for one in row)
    labels = [row[:5].strip() for row in rows[:-1] if row[:5].strip()]
    assert labels[0] != labels[-1]


def test_nothing_is_drawn_without_points_or_room() -> None:
    assert overlay([RunCurve([], "a")], 60, 9) == []
    assert overlay([curve(0.1, 0.2)], 60, 2) == []
    assert overlay([curve(0.1, 0.2)], 12, 9) == []
