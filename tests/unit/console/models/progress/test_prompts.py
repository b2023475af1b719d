"""The prompts that changed most."""

from console.models.progress.prompts import prompt_changes
from core.events import PromptFigures
from tests.support.looks import SERVER, baseline, figures_of, look, looks, probe_set, verdict
from tests.support.sample import state_of

WINS = verdict(effect=0.64, low=0.55, high=0.73, reference=0.5)


def test_prompts_are_listed_by_their_change_then_by_their_text() -> None:
    result = prompt_changes(state_of(*looks()).progress[SERVER])
    assert [one.id for one in result] == ["capital", "sum", "haiku", "sky"]
    first = result[0]
    assert (first.before, first.now) == (0.25, 0.95)
    assert round(first.change, 2) == 0.7
    assert first.prompt == "What is the capital of France?"
    assert first.reference == "Paris"
    assert first.text_now == "The capital of France is Paris."
    assert [one.same_text for one in result] == [False, False, True, False]
    before = [PromptFigures(id=i, rewards=(0.5,), answer=a) for i, a in (("x", "s"), ("y", "t"))]
    now = [PromptFigures(id=i, rewards=(0.5,), answer="s") for i in ("x", "y")]
    equal = state_of(baseline(prompts=tuple(before)), look("l1", 2, prompts=tuple(now)))
    assert [one.id for one in prompt_changes(equal.progress[SERVER])] == ["y", "x"]


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
    assert [(one.id, one.before, one.now, one.change) for one in result] == [
        ("sum", None, 0.0, -0.5),
        ("sky", None, 0.75, 0.25),
    ]


def test_a_prompt_without_rewards_or_without_a_baseline_is_left_out() -> None:
    now = (PromptFigures(id="sky"), PromptFigures(id="new", rewards=(1.0,)))
    state = state_of(probe_set(), baseline(), look("l1", 2, prompts=now))
    assert prompt_changes(state.progress[SERVER]) == []
    assert prompt_changes(state_of(probe_set(), baseline()).progress[SERVER]) == []
