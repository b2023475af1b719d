"""Engine runs: figures, differences, lines, curves."""

import pytest
from msgspec.structs import replace

from console.screens.history.model import (
    RunJob,
    compare,
    job_of,
    run_data,
    run_trend,
    since_start,
    title,
    verdict_sentence,
    verdict_word,
)
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
from core.events import RewardPart
from core.state import EngineRun, EngineRuns, RunPoint
from tests.support.checks import missing, present
from tests.support.groups import rows_of
from tests.support.runs import job_text, run_events
from tests.support.sample import HOSTILE, NOW, state_of

BARE = EngineRun(number=7, server="gpu", first_seq=1, began=NOW)


def test_a_job_in_words() -> None:
    runs = EngineRuns(jobs={"a": job_text("tiny", 1e-3), "b": "no: job", "c": "["})
    job = job_of(runs, replace(BARE, job="a"))
    assert job.brief == "tiny grpo lr 0.001 4x4"
    assert (job.model, job.algorithm, job.experiment) == ("tiny", "grpo", "ajet-console")
    for key in ("b", "c", "gone", ""):
        assert job_of(runs, replace(BARE, job=key, model="m")) == RunJob(model="m")


def test_a_run_without_figures() -> None:
    assert title(BARE) == "run 7"
    assert "\x1b" not in title(replace(BARE, name=HOSTILE))
    assert (verdict_word(BARE), run_trend(BARE), since_start(BARE)) == ("–", None, [])
    assert "no look" in verdict_sentence(BARE)


def test_the_trend_is_that_of_finished_steps() -> None:
    means = (0.2, 0.25, 0.3, 0.5, 0.55, 0.6, 0.0)
    points = [RunPoint(5 + place, mean) for place, mean in enumerate(means)]
    run = replace(BARE, curve=points, first_reward=points[0], first_step=5, last_step=11)
    trend = present(run_trend(run))
    assert trend.change == pytest.approx(0.3)
    assert [one.step for one in since_start(run)] == [0, 1, 2, 3, 4, 5]
    data = run_data(EngineRuns(), run, NOW)
    assert (data["gain"], data["gain_error"]) == (trend.change, trend.error)
    finished = present(run_trend(replace(run, last_step=12)))
    assert not finished.certain
    short = replace(run, curve=points[:4])
    assert (run_trend(short), run_data(EngineRuns(), short, NOW)["gain"]) == (None, None)
    assert run_trend(replace(run, rewards=["one"])) == trend
    assert run_trend(replace(run, rewards=["one", "two"])) is None, "their scales may differ"


def test_jobs_and_rewards_are_compared() -> None:
    runs = state_of(*run_events(1), *run_events(2), *run_events(3, rate=1e-4, weight=0.5))
    first, second, third = runs.engine_runs.runs
    same = compare(runs.engine_runs, first, second)
    assert (same.job, same.job_note) == ((), "the same job")
    assert same.rewards_note == "the same rewards: version v0.3"
    other = compare(runs.engine_runs, first, third)
    assert [(one.what, one.left, one.right) for one in other.job] == [
        ("Learning rate", "0.0005", "0.0001")
    ]
    assert [reward.what for reward in other.rewards] == ["length", "relevance"]
    assert not other.job_note


def test_what_is_unknown_is_said() -> None:
    runs = EngineRuns(
        jobs={"a": job_text(), "b": job_text() + "\n# a comment", "c": "["},
        rewards={"v1": (RewardPart(name="x", kind="x"),), "v2": (RewardPart(name="x", kind="x"),)},
    )
    left = replace(BARE, number=1, job="a", rewards=["v1"])
    notes = [
        (found.job_note, found.rewards_note)
        for right in (
            replace(BARE, number=2),
            replace(BARE, number=2, job="b", rewards=["v2"]),
            replace(BARE, number=2, job="c", rewards=["v9"]),
        )
        for found in [compare(runs, left, right)]
    ]
    assert notes[0] == (
        "the job of run 2 is unknown: another program started the engine",
        "run 2 scored no group",
    )
    assert notes[1][0] == "the same settings, written differently"
    assert "their code differs" in notes[1][1]
    assert notes[2][0].startswith("the jobs cannot be compared")
    assert "not in the journal" in notes[2][1]


def scored(number: int, *means: float, rewards: tuple[str, ...] = ("v1",)) -> EngineRun:
    points = [RunPoint(step, mean) for step, mean in enumerate(means, 1)]
    return replace(BARE, number=number, curve=points, rewards=list(rewards), last_step=99)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (scored(2, 0.6, 0.61, 0.62), "Run 2 is better by 0.40 ± 0.02: mean reward 0.21 and 0.61"),
        (scored(2, 0.0, 0.1, 0.1), "Run 1 is better by 0.14"),
        (scored(2, 0.1, 0.3, 0.2), "No run is better beyond noise (-0.01 ± 0.12)"),
        (scored(2, 0.9), "not known: run 2 has fewer than 3 finished steps"),
        (scored(2, 0.6, 0.6, 0.6, rewards=("v2",)), "not known: their rewards differ"),
        (scored(2, rewards=()), "not known: run 2 scored no group"),
    ],
)
def test_a_comparison_begins_with_which_run_is_better(other: EngineRun, words: str) -> None:
    compared = compare(EngineRuns(), scored(1, 0.2, 0.21, 0.22), other)
    assert words in "".join(rows_of(comparison(compared, NOW, 100, 30))[:1])


FIRST = EngineRun(number=1, server="gpu", first_seq=1, began=NOW)


NAMED = replace(FIRST, name="Longer Answers")


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


def test_unknown_figures_are_dashes() -> None:
    assert (steps_text(FIRST), rewards_text(FIRST), small_curve(FIRST)) == ("–", "–", "")
    named = "".join(text for text, _ in detail(EngineRuns(), NAMED, NOW, 80, 20)[0])
    assert named.startswith("Run 1 Longer Answers  20")
    lines = detail(EngineRuns(runs=[FIRST]), FIRST, NOW, 80, 20)
    text = "\n".join("".join(piece for piece, _ in line) for line in lines)
    assert not missing(
        text,
        "unknown: another program started the engine",
        "No group of this run has automatic rewards",
    )


def test_a_small_curve_has_as_many_bars_as_steps_up_to_twelve() -> None:
    points = [RunPoint(step, step / 40) for step in range(1, 31)]
    run = replace(FIRST, curve=points, first_step=1, last_step=31)
    assert (len(small_curve(run)), small_curve(replace(run, curve=points[:3]))) == (12, "▁▅█")


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
    run = replace(FIRST, curve=points, first_reward=points[0], first_step=1, last_step=9)
    lines = detail(EngineRuns(runs=[run]), run, NOW, 120, 20)
    (row,) = [line for line in lines if line and line[0][0].strip() == "reward"]
    assert row[1] == (f"0.30 at step 1, 0.70 at step {len(means)}{words}", tone)
    other = replace(run, number=2)
    both = comparison(compare(EngineRuns(runs=[run, other]), run, other), NOW, 120, 30)
    text = "\n".join("".join(piece for piece, _ in line) for line in both)
    assert (f"0.30→0.70 ({words[2:].removesuffix(' since step 1')})" in text) == bool(words)


def curve(*means: float, label: str = "a", first: int = 1) -> RunCurve:
    return RunCurve([RunPoint(first + at, mean) for at, mean in enumerate(means)], label)


def test_nothing_is_drawn_without_points_or_room() -> None:
    assert (overlay([RunCurve([], "a")], 60, 9), overlay([curve(0.1, 0.2)], 60, 2)) == ([], [])
    assert overlay([curve(0.1, 0.2)], 12, 9) == []


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
