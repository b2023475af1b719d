"""Parts of the reward as charts, and those of one group as bars."""

from collections.abc import Sequence

import pytest

from console.screens.rewards.charts import CHARTS, bars, chart, extremes, histogram, scatter
from console.screens.rewards.model import Digest, digest
from console.text.lines import line_width
from console.views.rewards.bars import bar_lines
from core.events import Part
from core.state import Rating, State
from tests.support.checks import missing
from tests.support.groups import rows_of, text_of
from tests.support.proxy.rewards import scored, state_with, two
from tests.support.sample import NOW

WIDTH, HEIGHT = 40, 12


APART = [two(0.9, 0), two(0.1, 0)]


EQUAL = [two(0.5, 0.1), two(0.5, 0.9)]


def made(*groups: Sequence[Sequence[Part]]) -> tuple[State, list[Digest]]:
    """A state with these groups, oldest first, and their digests."""
    state = state_with(*(scored(number, parts) for number, parts in enumerate(groups, 1)))
    return state, [digest(group) for group in state.groups.values()]


def drawn(kind: str, *groups: Sequence[Sequence[Part]]) -> list[str]:
    return rows_of(chart(kind, *made(*groups), "left", WIDTH, HEIGHT))


def test_means_by_rank_show_the_influence_of_a_part() -> None:
    groups = [two(0.2, 0.1), two(0.9, 0.8)], [two(0.8, 0.3), two(0.1, 0.2)]
    _, first, second = drawn("ranks", *groups)
    assert first.startswith("1. ▲")
    assert first.endswith("0.85")
    assert second.endswith("0.15")


def test_groups_of_equal_rewards_have_no_ranks() -> None:
    groups = [two(0.5, 0.5), two(0.5, 0.5)]
    assert made(groups)[1][0].parts["left"].ranks == ()
    assert "no answer has a rank" in " ".join(drawn("ranks", groups))


def test_best_and_worst_are_different_answers_newest_first() -> None:
    _, digests = made(APART, APART)
    assert extremes(digests, "left", True, 3) == [("g0002", 0, 0.9), ("g0001", 0, 0.9)]
    assert [value for *_, value in extremes(digests, "left", False, 3)] == [0.1, 0.1]


@pytest.mark.parametrize("kind", ["groups", "spread", "best", "worst"])
def test_a_constant_part_has_its_value_in_place_of_a_chart(kind: str) -> None:
    assert drawn(kind, EQUAL)[1:] == ["Every answer has 0.50"]


@pytest.mark.parametrize("kind", CHARTS)
def test_every_empty_chart_explains_its_content_and_the_keys(kind: str) -> None:
    shown = " ".join(drawn(kind))
    assert not missing(shown, "first", "F4, then s")


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
    assert (counts[0], counts[-1], set(counts[1:-1])) == ("3", "2", {"·"})


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
    lines = rows_of(bars([("1", 0.8), ("2", 0.2)], 40))
    assert lines[0].count("█") > 3 * lines[1].count("█") > 0
    assert lines[1].endswith(" 0.20")


@pytest.mark.parametrize("width", [0, 5])
def test_without_room_nothing_is_drawn(width: int) -> None:
    assert (scatter([(1.0,)], width, 9), histogram([1.0], width, 9)) == ([], [])
    assert bars([("1", 1.0)], width) == []


def bars_of(*parts: Sequence[Part], width: int = 100) -> list[str]:
    state = state_with(scored(1, parts))
    lines = bar_lines(state.groups["g0001"], width)
    assert all(line_width(line) <= width for line in lines)
    return text_of(lines).split("\n") if lines else []


def test_rewards_that_tie_with_two_decimals_are_told_apart() -> None:
    decided, first, second = bars_of(two(0.8, 0.004), two(0.8, 0.0))
    assert decided == "▲ #1 is 0.002 above #2: right +0.002"
    assert (first[-6:], second[-6:]) == (" 0.402", " 0.400")
    assert bars_of(two(0.8, 0.0004), two(0.8, 0.0))[0].startswith("▲ #1 is 2e-04 above #2")


def test_the_bars_show_by_which_part_the_winner_won() -> None:
    decided, first, second = bars_of(two(0.2, 0.6), two(1.0, 0.4))
    assert decided == "▲ #2 is 0.30 above #1: left +0.40, right -0.10"
    assert first.endswith(" 0.40")
    assert second.startswith("#2 ▲")
    assert not missing(second, "left 0.50", "right 0.20")
    assert second.endswith(" 0.70")


def test_the_panel_of_a_rated_group_explains_the_vote() -> None:
    state = state_with(scored(1, (two(0.2, 0.6), two(1.0, 0.4))))
    group = state.groups["g0001"]
    group.rating = Rating(
        rating="best", order=(0,), rewards=(1.0, 0.0), rater="anna", note="", at=NOW
    )
    group.source = "human"
    for candidate, reward in zip(group.candidates, (1.0, 0.0), strict=True):
        candidate.reward = reward
    decided, first, second = text_of(bar_lines(group, 100)).split("\n")
    assert decided.startswith("✓ the vote of anna decides: rewards 1.00 0.00; the bars are")
    assert first.startswith("#1 ▲")
    assert second.startswith("#2  ")


def test_a_gate_that_reduces_an_answer_is_shown_behind_its_bar() -> None:
    _, first, second = bars_of(two(0.2, 0.6), two(1.0, 0.4, gate=0.0))
    assert "open" not in first
    assert second.endswith(" 0.00 × open 0.00")
    assert "▏" in second


def test_negative_contributions_are_shown() -> None:
    _, first, _ = bars_of([Part("a", 1.0, 1.0), Part("b", -0.5, 0.4)], [Part("a", 0.1, 1.0)])
    assert first.endswith(" 0.80 (-0.20 below 0)")


def test_equal_rewards_have_no_winner() -> None:
    assert bars_of(two(0.5, 0.5), two(0.5, 0.5))[0] == ("#1 and #2 have the same automatic reward")


@pytest.mark.parametrize("parts", [[], [two(0.5, 0.5)], [[Part("open", 1.0, gate=True)]] * 2])
def test_without_two_answers_with_weighted_parts_there_are_no_bars(parts: list[list[Part]]) -> None:
    assert bars_of(*parts) == [] if parts else True
