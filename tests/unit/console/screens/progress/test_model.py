"""What the looks show: prompts and parts that changed most, points of the curve, pauses."""

from msgspec.structs import replace

from console.screens.progress.model import (
    look_points,
    ordered_parts,
    part_weights,
    pause_text,
    prompt_changes,
)
from console.session.app_state import Session
from core.events import (
    EngineChanged,
    LookEnded,
    PartFigures,
    PromptFigures,
    RewardPart,
    TrainingPaused,
    TrainingResumed,
)
from core.state import State, reduce
from tests.support.console import sample_events
from tests.support.looks import (
    RIGHT_FELL,
    SERVER,
    baseline,
    broken_look,
    figures_of,
    look,
    looks,
    probe_set,
    verdict,
)
from tests.support.sample import state_of

WINS = verdict(effect=0.64, low=0.55, high=0.73, reference=0.5)
REFERENCE = PartFigures(part="reference", mean=0.695, before=0.869, outcome="unknown")
STYLE = PartFigures(part="style", mean=0.7, before=0.4, outcome="better")
SLIGHT = PartFigures(part="slight", mean=0.504, before=0.5, outcome="worse")
GATE = PartFigures(part="gate", mean=1.0, before=1.0, outcome="unknown")
STILL = PartFigures(part="still", mean=0.505, before=0.5, outcome="unknown")
LENGTH = PartFigures(part="length", mean=31.0, before=24.5)
REPETITION = PartFigures(part="repetition", mean=0.03, before=0.03)
ROLLING = (
    EngineChanged(server=SERVER, state="BOOTING", step=12),
    EngineChanged(server=SERVER, state="ROLLING", step=12),
)


def test_prompts_are_listed_by_their_change_then_by_their_text() -> None:
    result = prompt_changes(state_of(*looks()).progress[SERVER])
    assert [change.id for change in result] == ["capital", "sum", "haiku", "sky"]
    first = result[0]
    assert (first.before, first.now) == (0.25, 0.95)
    assert round(first.change, 2) == 0.7
    assert first.prompt == "What is the capital of France?"
    assert first.reference == "Paris"
    assert first.text_now == "The capital of France is Paris."
    assert [change.same_text for change in result] == [False, False, True, False]
    before = [PromptFigures(id=i, rewards=(0.5,), answer=a) for i, a in (("x", "s"), ("y", "t"))]
    now = [PromptFigures(id=i, rewards=(0.5,), answer="s") for i in ("x", "y")]
    equal = state_of(baseline(prompts=tuple(before)), look("l1", 2, prompts=tuple(now)))
    assert [change.id for change in prompt_changes(equal.progress[SERVER])] == ["y", "x"]


def test_samples_are_compared_where_one_side_has_no_greedy_answer() -> None:
    before = (PromptFigures(id="sky", rewards=(0.0,), answer="", example="old sample"),)
    now = (PromptFigures(id="sky", rewards=(1.0,), answer="greedy", example="new sample"),)
    state = state_of(probe_set(), baseline(prompts=before), look("l1", 2, prompts=now))
    one = prompt_changes(state.progress[SERVER])[0]
    assert (one.text_before, one.text_now) == ("old sample", "new sample")


def test_comparisons_change_by_their_distance_to_an_even_win_rate() -> None:
    now = (PromptFigures(id="sky", rewards=(1.0, 0.5)), PromptFigures(id="sum", rewards=(0.0,)))
    state = state_of(
        probe_set(),
        baseline(mode="wins", prompts=figures_of(False)),
        look("l1", 2, mode="wins", prompts=now, verdict=WINS),
    )
    result = prompt_changes(state.progress[SERVER])
    assert [(change.id, change.before, change.now, change.change) for change in result] == [
        ("sum", None, 0.0, -0.5),
        ("sky", None, 0.75, 0.25),
    ]


def test_a_prompt_without_rewards_or_without_a_baseline_is_left_out() -> None:
    now = (PromptFigures(id="sky"), PromptFigures(id="new", rewards=(1.0,)))
    state = state_of(probe_set(), baseline(), look("l1", 2, prompts=now))
    assert prompt_changes(state.progress[SERVER]) == []
    assert prompt_changes(state_of(probe_set(), baseline()).progress[SERVER]) == []


def order(*parts: PartFigures, **weights: float) -> list[str]:
    look = LookEnded(look_id="l1", role="look", outcome="complete", parts=parts)
    return [figures.part for figures in ordered_parts(look, weights)]


def test_the_part_that_changed_the_reward_most_is_first_and_constant_ones_are_last() -> None:
    parts = (REPETITION, GATE, STILL, LENGTH, SLIGHT, STYLE, REFERENCE)
    assert order(*parts, reference=0.8, style=0.2, slight=0.1) == [
        "reference",
        "style",
        "slight",
        "length",
        "gate",
        "still",
        "repetition",
    ]
    assert order(*parts)[:3] == ["style", "reference", "slight"], "without known weights"


def test_what_is_worse_and_not_in_the_reward_is_first() -> None:
    polite = PartFigures(part="polite", mean=0.9, before=0.1, outcome="better", counts=False)
    parts = (REPETITION, LENGTH, polite, STYLE, RIGHT_FELL)
    assert order(*parts, style=0.2) == ["right answers", "style", "polite", "length", "repetition"]


def test_a_part_without_a_figure_before_is_constant_and_one_named_like_a_trait_is_a_part() -> None:
    first = PartFigures(part="new", mean=0.9)
    same = PartFigures(part="length", mean=0.9, before=0.5, outcome="better")
    assert order(first, LENGTH, same) == ["length", "length", "new"]
    assert order(first, LENGTH, STYLE, same)[:2] == ["length", "style"]


def test_weights_are_those_of_the_version_that_scored_the_look() -> None:
    state = State()
    state.rewards.version = "v2"
    state.rewards.parts = (
        RewardPart(name="reference", kind="exact", weight=0.8, share=True),
        RewardPart(name="style", kind="length", weight=0.2, share=True),
        RewardPart(name="safe", kind="words", gate=True),
        RewardPart(name="old", kind="words", enabled=False),
    )
    look = LookEnded(look_id="l1", role="look", outcome="complete", reward="v2")
    assert part_weights(state, look) == {"reference": 0.8, "style": 0.2, "safe": 1.0}
    look = replace(look, reward="v1")
    assert part_weights(state, look) == {}
    state.engine_runs.rewards["v1"] = (RewardPart(name="style", kind="length", weight=3.0),)
    assert part_weights(state, look) == {"style": 3.0}


def test_points_are_complete_looks_and_mark_the_comparison_in_use() -> None:
    events = [
        *looks((0.5, 0.6)),
        broken_look("l9", 8, "cut", "x"),
        baseline("b2", 9, mean=0.61),
        look("m1", 10, 0.7, baseline_id="b2"),
        look("m2", None, 0.7, baseline_id="b2"),
    ]
    result = look_points(state_of(*events).progress[SERVER])
    shown = [(point.step, point.mean, point.is_baseline, point.is_current) for point in result]
    assert shown == [
        (1, 0.41, True, False),
        (4, 0.5, False, False),
        (6, 0.6, False, False),
        (9, 0.61, True, True),
        (10, 0.7, False, True),
    ]


def test_steps_that_a_later_engine_run_repeats_are_taken_from_that_run() -> None:
    again = [
        EngineChanged(server=SERVER, state="OFFLINE", step=0),
        EngineChanged(server=SERVER, state="BOOTING", step=0),
        EngineChanged(server=SERVER, state="ROLLING", step=0),
    ]
    state = state_of(*ROLLING, *looks((0.5, 0.6)), *again, look("l9", 4, 0.55))
    assert [(point.step, point.mean) for point in look_points(state.progress[SERVER])] == [
        (1, 0.41),
        (4, 0.55),
    ]


def test_a_baseline_of_comparisons_is_drawn_at_an_even_win_rate() -> None:
    state = state_of(
        *looks((0.5,)),
        baseline("b2", 5, mode="wins", mean=0.0),
        look("m1", 6, 0.64, baseline_id="b2", mode="wins", verdict=WINS),
    )
    result = look_points(state.progress[SERVER])
    assert [(point.step, point.mean) for point in result] == [(5, 0.5), (6, 0.64)], "one scale only"


def test_each_server_is_named_with_the_reason_and_the_way_out() -> None:
    session = Session()
    session.state = state_of(*sample_events()[:2])
    assert pause_text(session) == ""
    reduce(session.state, TrainingPaused(server="embedded", cause="paused by the operator"))
    reduce(session.state, TrainingPaused(server="removed", cause="paused by the operator"))
    words = "Training on embedded is paused by the operator: nothing is trained."
    assert pause_text(session) == f"{words} 8 then r resumes"
    viewer = Session(read_only=True)
    viewer.state = session.state
    assert pause_text(viewer) == words
    reduce(session.state, TrainingResumed(server="embedded"))
    assert pause_text(session) == ""
