"""One part of the reward as charts, and the parts of one reward as bars."""

from collections.abc import Sequence

import pytest

from console.models.reward_figures import Digest, digest
from console.text.lines import line_width
from console.text.sections import Room
from console.views.rewards.bars import TONES, bar_lines
from console.views.rewards.charts import answers, by_rank, extremes, over_groups, spread
from core.events import Part
from core.state import Rating, State
from tests.support.console import HOSTILE, NOW
from tests.support.groups import text_of
from tests.support.proxy.rewards import scored, state_with, two

ROOM = Room(40, 12, tall=True)


def made(*groups: Sequence[Sequence[Part]]) -> tuple[State, list[Digest]]:
    """A state with these groups, oldest first, and their digests."""
    state = state_with(*(scored(number, parts) for number, parts in enumerate(groups, 1)))
    return state, [digest(one) for one in state.groups.values()]


# --- charts ----------------------------------------------------------------------------------


def test_means_by_rank_show_the_influence_of_a_part() -> None:
    _, digests = made([two(0.2, 0.1), two(0.9, 0.8)], [two(0.8, 0.3), two(0.1, 0.2)])
    first, second = by_rank(digests, "left", ROOM).plain.split("\n")[1:]
    assert first.startswith("1. ▲")
    assert first.endswith("0.85")
    assert second.endswith("0.15")


def test_groups_of_equal_rewards_have_no_ranks() -> None:
    _, digests = made([two(0.5, 0.5), two(0.5, 0.5)])
    assert digests[0].parts["left"].ranks == ()
    assert "no answer has a rank" in by_rank(digests, "left", ROOM).plain.replace("\n", " ")


def test_best_and_worst_are_different_answers_newest_first() -> None:
    _, digests = made([two(0.9, 0), two(0.1, 0)], [two(0.9, 0), two(0.1, 0)])
    high, low = extremes(digests, "left", 3)
    assert [(one.group_id, one.index, one.value) for one in high] == [
        ("g0002", 0, 0.9),
        ("g0001", 0, 0.9),
    ]
    assert [one.value for one in low] == [0.1, 0.1]


def test_a_constant_part_has_no_worst_answer() -> None:
    state, digests = made([two(0.5, 0.1), two(0.5, 0.9)])
    assert "same value" in answers(state, digests, "left", False, ROOM).plain
    assert "Every answer has 0.50" in over_groups(digests, "left", ROOM).plain
    assert "All 2 answers have 0.50" in spread(digests, "left", ROOM).plain


def test_an_answer_is_shown_below_its_value_and_its_question() -> None:
    state, digests = made([two(0.9, 0), two(0.1, 0)])
    plain = answers(state, digests, "left", True, ROOM).plain
    assert "0.90  reward 0.45  #1  Why is" in plain
    assert "answer 0 to: Why is the sky blue?" in plain


def test_hostile_answers_stay_harmless() -> None:
    state, digests = made([two(0.9, 0), two(0.1, 0)])
    for group in state.groups.values():
        group.query = HOSTILE
        for one in group.candidates:
            one.text = HOSTILE * 9
    for best in (True, False):
        shown = answers(state, digests, "left", best, ROOM)
        assert all(line.cell_length <= ROOM.width for line in shown.split("\n"))
        assert "\x1b" not in shown.plain
        assert "\u202e" not in shown.plain


def test_every_empty_chart_explains_its_content_and_the_keys() -> None:
    state, digests = made()
    for empty in (
        over_groups(digests, "left", ROOM),
        spread(digests, "left", ROOM),
        by_rank(digests, "left", ROOM),
        answers(state, digests, "left", True, ROOM),
    ):
        assert "first" in empty.plain
        assert "F4, then s" in empty.plain.replace("\n", " ")


# --- bars ------------------------------------------------------------------------------------


def bars_of(*parts: Sequence[Part], width: int = 100) -> list[str]:
    state, _ = made(parts)
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
    assert "left 0.50" in second
    assert "right 0.20" in second
    assert second.endswith(" 0.70")


def test_the_panel_of_a_rated_group_explains_the_vote() -> None:
    state, _ = made((two(0.2, 0.6), two(1.0, 0.4)))
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
