"""The parts of one reward as bars."""

from collections.abc import Sequence

import pytest

from console.text.lines import line_width
from console.views.rewards.bars import TONES, bar_lines
from core.events import Part
from core.state import Rating
from tests.support.checks import missing
from tests.support.groups import text_of
from tests.support.proxy.rewards import scored, state_with, two
from tests.support.sample import HOSTILE, NOW

# --- bars ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("width", [30, 60, 200])
def test_many_parts_with_hostile_names_stay_within_the_width(width: int) -> None:
    parts = [Part(f"{HOSTILE}{at}", at / 30, 0.1) for at in range(3 * TONES)]
    other = [Part(f"{HOSTILE}{at}", 0.5, 0.1) for at in range(3 * TONES)]
    result = "\n".join(bars_of(parts, other, width=width))
    assert "\x1b" not in result
