"""Engine runs in words, and what differs between two of them."""

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
from core.events import RewardPart
from core.state import EngineRun, EngineRuns, RunPoint
from tests.support.checks import present
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
    assert [one.what for one in other.rewards] == ["length", "relevance"]
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
