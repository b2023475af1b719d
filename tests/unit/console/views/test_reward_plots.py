"""Plots of one part of the reward."""

import pytest

from console.text.lines import line_width
from console.views.rewards.charts import bars, histogram, scatter
from tests.support.groups import rows_of

WIDTHS = (24, 40, 77)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [1, 3, 200, 2_000])
def test_a_scatter_stays_within_its_room(width: int, count: int) -> None:
    columns = [(at / count, 1.0, -0.5) for at in range(count)]
    lines = scatter(columns, width, 9)
    assert len(lines) == 9
    assert all(line_width(line) <= width for line in lines)


def test_a_scatter_shows_the_oldest_at_the_left_and_each_mean() -> None:
    lines = rows_of(scatter([(0.0,), (1.0,)], 26, 6))
    assert lines[0].startswith(" 1.00")
    assert lines[4].startswith(" 0.00")
    assert lines[4].index("━") < lines[0].index("━")
    assert "2 groups" in lines[-1]


def test_equal_values_can_be_drawn() -> None:
    assert scatter([(0.5, 0.5)] * 4, 40, 6)
    assert histogram([0.5] * 4, 40, 6)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_histogram_counts_each_value_once(width: int) -> None:
    lines = histogram([0.0, 0.05, 0.95, 1.0, 1.0], width, 10)
    assert all(line_width(line) <= width for line in lines)
    counts = [line.split()[-1] for line in rows_of(lines)]
    assert counts[0] == "3"
    assert counts[-1] == "2"
    assert set(counts[1:-1]) == {"·"}


@pytest.mark.parametrize(
    ("low", "high", "rows", "starts"),
    [
        (0.0, 1.0, 12, ("0.90+", "0.00+")),
        (0.1, 0.96, 14, ("0.90+", "0.10+")),
        (0.0, 1.0, 5, ("0.80+", "0.00+")),
    ],
)
def test_the_ranges_of_a_histogram_begin_at_round_figures(
    low: float, high: float, rows: int, starts: tuple[str, str]
) -> None:
    lines = [line.split()[0] for line in rows_of(histogram([low, high], 40, rows))]
    assert (lines[0], lines[-1]) == starts


def test_the_longest_bar_is_the_highest_value() -> None:
    lines = rows_of(bars([("1", 0.8, "0.80"), ("2", 0.2, "0.20")], 40))
    assert lines[0].count("█") > 3 * lines[1].count("█") > 0
    assert lines[1].endswith(" 0.20")


@pytest.mark.parametrize("width", [0, 5])
def test_without_room_nothing_is_drawn(width: int) -> None:
    assert scatter([(1.0,)], width, 9) == []
    assert histogram([1.0], width, 9) == []
    assert bars([("1", 1.0, "1")], width) == []
