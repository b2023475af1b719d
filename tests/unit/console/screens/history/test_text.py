"""Lines about engine runs: every width, hostile text, unknown figures."""

import pytest
from msgspec.structs import replace

from console.screens.history.model import compare
from console.screens.history.text import (
    RunCurve,
    comparison,
    detail,
    overlay,
    rewards_text,
    small_curve,
    steps_text,
    table_head,
    table_row,
)
from console.text.lines import line_width
from core.state import EngineRun, EngineRuns, RunPoint
from tests.support.checks import missing
from tests.support.groups import rows_of
from tests.support.runs import run_events
from tests.support.sample import HOSTILE, NOW, state_of

BARE = EngineRun(number=1, server="gpu", first_seq=1, began=NOW)
NAMED = replace(BARE, name="Longer Answers")


def two_runs() -> EngineRuns:
    return state_of(*run_events(1, verdict=True), *run_events(2, rate=1e-3)).engine_runs


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("width", [40, 78, 100, 118, 158])
def test_head_and_rows_have_the_same_columns_at_every_width(width: int, several: bool) -> None:
    runs = two_runs()
    run = replace(runs.runs[0], name=HOSTILE, note=HOSTILE, server=HOSTILE, pinned=True)
    row = table_row(runs, run, NOW, width, several=several, marked=True)
    assert line_width(table_head(width, several=several)) == line_width(row)
    assert line_width(row) <= max(width, 50)
    assert "\x1b" not in "".join(text for text, _ in row)


def test_columns_of_a_narrow_terminal() -> None:
    head = "".join(text for text, _ in table_head(78, several=False)).split()
    assert head[:7] == ["run", "began", "lasted", "steps", "reward", "verdict", "rated"]


def test_unknown_figures_are_dashes() -> None:
    assert (steps_text(BARE), rewards_text(BARE), small_curve(BARE)) == ("–", "–", "")
    named = "".join(text for text, _ in detail(EngineRuns(), NAMED, NOW, 80, 20)[0])
    assert named.startswith("Run 1 Longer Answers  20")
    lines = detail(EngineRuns(runs=[BARE]), BARE, NOW, 80, 20)
    text = "\n".join("".join(piece for piece, _ in line) for line in lines)
    assert not missing(
        text,
        "unknown: another program started the engine",
        "No group of this run has automatic rewards",
    )


def test_a_small_curve_has_as_many_bars_as_steps_up_to_twelve() -> None:
    points = [RunPoint(step, step / 40) for step in range(1, 31)]
    run = replace(BARE, curve=points, first_step=1, last_step=31)
    assert (len(small_curve(run)), small_curve(replace(run, curve=points[:3]))) == (12, "▁▅█")


@pytest.mark.parametrize("width", [60, 78, 158])
def test_details_and_comparison_fit_every_width(width: int) -> None:
    runs = two_runs()
    first, second = runs.runs
    first.name = first.note = HOSTILE
    first.ending = "unseen"
    for lines in (
        detail(runs, first, NOW, width, 20),
        comparison(compare(runs, first, second), NOW, width, 30),
    ):
        assert max(line_width(one) for one in lines) <= width
        assert "\x1b" not in "".join(text for line in lines for text, _ in line)


@pytest.mark.parametrize(
    ("means", "words", "tone"),
    [
        ((0.3, 0.3, 0.4, 0.6, 0.7, 0.7), "; ▲ up 0.33 since step 1", "$reward-up"),
        ((0.3, 0.8, 0.4, 0.9, 0.2, 0.7), "; ≈ +0.10 ± 0.52 since step 1", ""),
        ((0.3, 0.4, 0.5, 0.6, 0.7), "", ""),
    ],
)
def test_a_change_of_the_reward_that_may_be_noise_has_no_colour(
    means: tuple[float, ...], words: str, tone: str
) -> None:
    points = [RunPoint(step, mean) for step, mean in enumerate(means, 1)]
    run = replace(BARE, curve=points, first_reward=points[0], first_step=1, last_step=9)
    lines = detail(EngineRuns(runs=[run]), run, NOW, 120, 20)
    (row,) = [line for line in lines if line and line[0][0].strip() == "reward"]
    assert row[1] == (f"0.30 at step 1, 0.70 at step {len(means)}{words}", tone)
    other = replace(run, number=2)
    both = comparison(compare(EngineRuns(runs=[run, other]), run, other), NOW, 120, 30)
    text = "\n".join("".join(piece for piece, _ in line) for line in both)
    assert (f"0.30→0.70 ({words[2:].removesuffix(' since step 1')})" in text) == bool(words)


# --- curves ----------------------------------------------------------------------------------


def curve(*means: float, label: str = "a", first: int = 1) -> RunCurve:
    return RunCurve([RunPoint(first + at, mean) for at, mean in enumerate(means)], label)


def test_all_lines_have_the_width_and_the_ends_are_named() -> None:
    lines = overlay([curve(0.1, 0.4, 0.9), curve(0.2, 0.2, label="b")], 60, 9)
    assert (len(lines), {line_width(line) for line in lines}) == (9, {60})
    rows = rows_of(lines)
    assert rows[0].startswith(" 0.90")
    assert rows[-1].split() == ["step", "1", "━━", "a", "┅┅", "b", "3"]


def test_the_second_curve_is_dashed_and_has_another_colour() -> None:
    whole = overlay([curve(0.5, 0.5)], 60, 5)
    dashed = overlay([curve(0.1, 0.1), curve(0.5, 0.5, label="b")], 60, 9)
    dots = sum(cell > "\u2800" for row in rows_of(whole)[:-1] for cell in row)
    assert dots == 54
    second = [piece for line in dashed[:-1] for piece, tone in line if tone == "$winner"]
    assert 0.4 * dots < sum(len(row) for row in second) < 0.7 * dots
    assert [piece for line in dashed[:-1] for piece, tone in line if tone == "$curve"]


def test_a_single_point_is_drawn_and_a_flat_curve_has_an_axis() -> None:
    rows = rows_of(overlay([curve(0.453)], 40, 7))
    assert any(character > "\u2800" for row in rows for character in row)
    labels = [row[:5].strip() for row in rows[:-1] if row[:5].strip()]
    assert labels[0] != labels[-1]


def test_nothing_is_drawn_without_points_or_room() -> None:
    assert (overlay([RunCurve([], "a")], 60, 9), overlay([curve(0.1, 0.2)], 60, 2)) == ([], [])
    assert overlay([curve(0.1, 0.2)], 12, 9) == []
