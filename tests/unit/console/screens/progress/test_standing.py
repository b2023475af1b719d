"""The sentence of the verdict and its notes."""

import pytest
from msgspec.structs import replace

from console.screens.progress.model import (
    progress_server,
    restores,
    standing,
)
from core.events import (
    EngineChanged,
    Event,
    PartFigures,
    Rewound,
    TrainingPaused,
    TrainingRunIdentified,
)
from core.state import State
from tests.support.looks import (
    BELOW_BEST,
    PARTS,
    RIGHT_FELL,
    SERVER,
    baseline,
    broken_look,
    look,
    looks,
    probe_set,
    running_look,
    verdict,
)
from tests.support.sample import NOW, state_of

ROLLING = (
    EngineChanged(server=SERVER, state="BOOTING", step=12),
    EngineChanged(server=SERVER, state="ROLLING", step=12),
)
WINS = verdict(effect=0.64, low=0.55, high=0.73, reference=0.5)


def sentence(*events: Event) -> str:
    return standing(state_of(*events), SERVER).sentence


@pytest.mark.parametrize(
    ("figures", "words", "outcome"),
    [
        (
            verdict("better"),
            "Better by 0.21 (0.12 to 0.30) than at step 1, on 64 shipped prompts",
            "better",
        ),
        (
            verdict("worse"),
            "Worse by 0.21 (0.12 to 0.30) than at step 1, on 64 shipped prompts",
            "worse",
        ),
        (
            verdict("unknown"),
            "Not known yet: +0.04 (-0.09 to +0.17), about 490 more samples",
            "unknown",
        ),
        (verdict("unknown", more=None), "Not known yet: +0.04 (-0.09 to +0.17)", "unknown"),
        (
            verdict(prompts=1),
            "Better by 0.21 (0.12 to 0.30) than at step 1, on 1 shipped prompt",
            "better",
        ),
    ],
)
def test_a_verdict_is_one_sentence(figures: object, words: str, outcome: str) -> None:
    result = standing(state_of(probe_set(), baseline(), look("l1", 12, verdict=figures)), SERVER)
    assert (result.sentence, result.outcome, result.notes) == (words, outcome, ())
    assert result.look is not None
    assert result.baseline is not None
    assert (result.look.look_id, result.baseline.look_id) == ("l1", "b1")


def test_prompts_of_a_file_are_named_by_it() -> None:
    own = replace(probe_set(), source="some/where/sums.jsonl")
    assert sentence(own, baseline(), look("l1", 12)).endswith("on 64 prompts of sums.jsonl")


def test_comparisons_have_a_win_rate() -> None:
    ended = look("l1", 12, mode="wins", verdict=WINS)
    words = "Better: wins 0.64 of the comparisons (0.55 to 0.73) against step 1, on 64 prompts"
    assert sentence(baseline(mode="wins"), ended) == words
    nowhere = sentence(baseline(step=None, mode="wins"), ended)
    assert nowhere.endswith("against the baseline, on 64 prompts")


def test_the_verdict_of_an_older_step_names_the_step() -> None:
    fresh = look("l1", 12)
    assert " at step 12" not in sentence(*ROLLING, baseline(), fresh)
    old = look("l1", 9)
    assert sentence(*ROLLING, baseline(), old) == (
        "Better by 0.21 (0.12 to 0.30) at step 9 than at step 1, on 64 prompts"
    )
    unknown = look("l1", 9, outcome="unknown")
    assert sentence(*ROLLING, baseline(), unknown) == (
        "Not known yet at step 9: +0.04 (-0.09 to +0.17), about 490 more samples"
    )
    again = (
        EngineChanged(server=SERVER, state="OFFLINE", step=12),
        EngineChanged(server=SERVER, state="BOOTING", step=12),
        EngineChanged(server=SERVER, state="ROLLING", step=12),
    )
    assert " at step 12 than" in sentence(*ROLLING, baseline(), fresh, *again), "another engine run"


def run(number: int, name: str = "") -> TrainingRunIdentified:
    return TrainingRunIdentified(server=SERVER, number=number, name=name or f"chat.{number}")


def test_a_step_of_another_training_run_is_not_taken_for_the_present_one() -> None:
    again = (
        EngineChanged(server=SERVER, state="OFFLINE", step=12),
        EngineChanged(server=SERVER, state="BOOTING", step=12),
        EngineChanged(server=SERVER, state="ROLLING", step=12),
    )
    first = (*ROLLING, run(1), baseline(run=1), look("l1", 12, run=1))
    assert " at step 12" not in sentence(*first)
    assert " at step 12" not in sentence(*first, *again, run(1)), "the same weights"
    assert sentence(*first, *again, run(2)) == (
        "Better by 0.21 (0.12 to 0.30) at step 12 of training run 1 than at step 1, on 64 prompts"
    )
    rewound = (*first, *again, run(2), look("l2", 12, run=2))
    assert sentence(*rewound) == (
        "Better by 0.21 (0.12 to 0.30) than at step 1 of training run 1, on 64 prompts"
    )


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "The probe set is not known yet"),
        ([probe_set(error="a.jsonl is empty")], "No probe set: a.jsonl is empty"),
        ([probe_set(error="no probe set: set `probe.file`")], "No probe set: set `probe.file`"),
        ([probe_set()], "No look yet: the first one, at 4 prompts, is the baseline"),
        ([probe_set(), *running_look(120, "baseline")], "First look: 120 of 512 answers"),
        ([probe_set(), *running_look(3, "baseline", samples=0)], "First look: 3 of ? answers"),
        (
            [probe_set(), broken_look("b0", 1, "failed", "judge down", role="baseline")],
            "First look at step 1 failed: judge down",
        ),
        (
            [probe_set(), broken_look("b0", None, "cut", "", role="baseline")],
            "First look was cut short",
        ),
        ([baseline()], "Baseline taken at step 1; the verdict follows the next look"),
        (
            [baseline(step=None)],
            "Baseline taken at an unknown step; the verdict follows the next look",
        ),
        ([baseline(), look("l1", 5, verdict=None)], "No verdict from the look at step 5"),
    ],
)
def test_without_a_verdict_the_sentence_says_why(events: list[Event], words: str) -> None:
    result = standing(state_of(*events), SERVER)
    assert (result.sentence, result.outcome, result.look is None) == (
        words,
        "unknown",
        "look at step 5" not in words,
    )


@pytest.mark.parametrize(
    ("outcome", "cause", "note"),
    [
        ("cut", "the engine left ROLLING", "The look at step 14 was cut short: the engine left"),
        ("failed", "the judge\x1b[2J is down", "The look at step 14 failed: the judge"),
    ],
)
def test_a_look_without_result_never_replaces_a_verdict(
    outcome: str, cause: str, note: str
) -> None:
    events = [probe_set(), baseline(), look("l1", 12)]
    result = standing(state_of(*events, broken_look("l2", 14, outcome, cause)), SERVER)
    assert result.sentence == sentence(*events)
    assert len(result.notes) == 1
    assert result.notes[0].startswith(note)
    assert "\x1b" not in result.notes[0]
    after = state_of(*events, broken_look("l2", 14, outcome, cause), look("l3", 15))
    assert standing(after, SERVER).notes == (), "a complete look came after it"


def test_notes_name_a_new_comparison_and_a_lost_probe_set() -> None:
    first = baseline(restarted="the reward changed")
    result = standing(state_of(first, look("l1", 3), *running_look(9)), SERVER)
    assert result.running == "Look at step 13: 9 of 512 answers"
    assert result.notes == ("New comparison with step 1: the reward changed",)
    lost = standing(state_of(first, probe_set(error="b.jsonl is missing")), SERVER)
    assert "No probe set: b.jsonl is missing" in lost.notes
    retaken = standing(state_of(*looks(), *running_look(9, "baseline")), SERVER)
    assert retaken.running == "New baseline at step 13: 9 of 512 answers"


def test_looks_that_are_off_are_named_with_the_way_to_turn_them_on() -> None:
    off = "Looks are off: set `probe.share` above 0, restart the proxy"
    nothing = standing(state_of(probe_set(enabled=False)), SERVER)
    assert (nothing.sentence, nothing.outcome, nothing.notes) == (off, "unknown", ())
    lost = standing(state_of(probe_set("a.jsonl is empty", enabled=False)), SERVER)
    assert (lost.sentence, lost.notes) == (off, ("No probe set: a.jsonl is empty",))
    earlier = standing(state_of(*looks(), probe_set(enabled=False)), SERVER)
    assert earlier.sentence.startswith("Better by 0.21")
    assert earlier.notes == (off,)
    assert standing(state_of(*looks(), probe_set()), SERVER).notes == ()


def test_a_pause_is_the_first_note_even_before_a_baseline() -> None:
    paused = TrainingPaused(server=SERVER, cause="paused by the operator")
    words = "Training is paused, requests do not train: paused by the operator"
    assert standing(state_of(probe_set(), paused), SERVER).notes == (words,)
    later = standing(state_of(*looks(), broken_look("x", 14, "cut", "y"), paused), SERVER)
    assert (later.notes[0], len(later.notes)) == (words, 2)


def test_a_new_baseline_names_the_last_verdict() -> None:
    result = standing(state_of(*looks(), baseline("b2", 12)), SERVER)
    assert result.sentence == "Baseline taken at step 12; the verdict follows the next look"
    assert result.outcome == "unknown"
    assert result.notes == ("Last comparison, at step 12: better by 0.21 (0.12 to 0.30)",)


def test_the_first_server_with_a_look_is_shown() -> None:
    servers = [EngineChanged(server=name, state="OFFLINE", step=0) for name in ("a", "b", "c")]
    assert progress_server(State()) == ""
    assert progress_server(state_of(*servers)) == "a"
    missing = probe_set(error="none", server="a")
    assert progress_server(state_of(*servers, missing, probe_set(server="b"))) == "b"
    events = (*servers, probe_set(server="b"), baseline(server="c"))
    assert progress_server(state_of(*events)) == "c"


UNKNOWN = verdict("unknown", effect=0.04, low=-0.004, high=0.08)


def test_a_policy_below_its_best_step_is_not_merely_unknown() -> None:
    fallen = look("l2", 146, verdict=UNKNOWN, against_best=BELOW_BEST)
    result = standing(state_of(probe_set(), baseline(), fallen), SERVER)
    assert result.sentence == (
        "Below its best: 0.07 less (0.05 to 0.10) than at step 86; "
        "than at step 1 not known yet: +0.04 (-0.00 to +0.08)"
    )
    assert (result.outcome, result.tone, result.notes) == ("unknown", "worse", ())
    assert result.below_best == BELOW_BEST
    older = sentence(
        *ROLLING,
        baseline(run=1),
        look("l2", 146, verdict=UNKNOWN, run=2, against_best=replace(BELOW_BEST, run=1)),
    )
    assert older == (
        "At step 146 below its best: 0.07 less (0.05 to 0.10) than at step 86 of training run 1; "
        "than at step 1 of training run 1 not known yet: +0.04 (-0.00 to +0.08)"
    )


@pytest.mark.parametrize("outcome", ["better", "worse"])
def test_a_verdict_stays_and_a_note_names_the_best_step(outcome: str) -> None:
    fallen = look("l2", 146, outcome=outcome, against_best=BELOW_BEST)
    result = standing(state_of(probe_set(), baseline(), fallen), SERVER)
    assert result.sentence.startswith(f"{outcome.capitalize()} by 0.21 (0.12 to 0.30) than")
    assert result.tone == outcome
    words = "Below its best verified step: 0.07 less (0.05 to 0.10) than at step 86"
    assert result.notes == (words,)


def test_a_difference_from_the_best_step_that_may_be_none_says_nothing() -> None:
    near = look("l2", 146, verdict=UNKNOWN, against_best=replace(BELOW_BEST, high=0.0))
    result = standing(state_of(probe_set(), baseline(), near), SERVER)
    assert result.sentence.startswith("Not known yet: +0.04 (-0.00 to +0.08), about")
    assert (result.tone, result.below_best, result.notes) == ("unknown", None, ())


def test_a_rewind_restores_the_best_saved_step_once() -> None:
    best = look("l1", 86, checkpoint="progress-1")
    fallen = look("l2", 146, verdict=UNKNOWN, against_best=BELOW_BEST)
    state = state_of(probe_set(), baseline(), best, fallen)
    assert restores(standing(state, SERVER), state.progress[SERVER]) == "step 86"
    unsaved = state_of(baseline(), look("l1", 86), fallen)
    assert restores(standing(unsaved, SERVER), unsaved.progress[SERVER]) == ""
    near = state_of(baseline(), best, look("l2", 146, verdict=UNKNOWN))
    assert restores(standing(near, SERVER), near.progress[SERVER]) == ""
    rewound = Rewound(server=SERVER, look_id="l1", step=86, at=NOW)
    after = state_of(baseline(), best, fallen, rewound)
    assert restores(standing(after, SERVER), after.progress[SERVER]) == ""


@pytest.mark.parametrize(
    ("outcome", "tone"), [("better", "unknown"), ("unknown", "worse"), ("worse", "worse")]
)
def test_what_is_worse_outside_the_reward_stands_in_the_sentence(outcome: str, tone: str) -> None:
    polite = PartFigures(part="polite", mean=0.4, before=0.91, outcome="worse", counts=False)
    events = probe_set(), baseline(), look("l1", 12, outcome=outcome, parts=PARTS)
    alone = standing(state_of(*events), SERVER)
    assert (alone.worse_parts, alone.tone) == ("", outcome), "parts that count are in the verdict"
    fallen = look("l2", 12, outcome=outcome, parts=(*PARTS, polite, RIGHT_FELL))
    result = standing(state_of(*events, fallen), SERVER)
    assert result.worse_parts == "polite 0.91 to 0.40, right answers 0.60 to 0.14"
    assert result.sentence == f"{alone.sentence}; worse: {result.worse_parts}"
    assert (result.outcome, result.tone) == (outcome, tone)
