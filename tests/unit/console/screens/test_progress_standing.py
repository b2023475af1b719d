"""The sentence of the verdict, its notes, and what a rewind restores."""

from typing import Any

import pytest
from msgspec.structs import replace

from console.screens.progress.model import Standing, progress_server, restores, standing
from core.events import EngineChanged, Event, PartFigures, Rewound, TrainingPaused
from core.events import TrainingRunIdentified as Run
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


def engine(*states: str) -> list[Event]:
    """The engine takes these states at step 12."""
    return [EngineChanged(server=SERVER, state=state, step=12) for state in states]


def at(*events: Event) -> Standing:
    return standing(state_of(*events), SERVER)


BASE = (probe_set(), baseline())


def compared(**fields: Any) -> tuple[Event, ...]:
    """A look at step 12 after a baseline."""
    return *BASE, look("l1", 12, **fields)


ROLLING = engine("BOOTING", "ROLLING")


AGAIN = engine("OFFLINE", "BOOTING", "ROLLING")


FIRST, SECOND = (Run(server=SERVER, number=number, name=f"chat.{number}") for number in (1, 2))


OF_FIRST = (*ROLLING, FIRST, baseline(run=1), look("l1", 12, run=1))


WINS = verdict(effect=0.64, low=0.55, high=0.73, reference=0.5)


UNKNOWN = verdict("unknown", effect=0.04, low=-0.004, high=0.08)


FALLEN = look("l2", 146, verdict=UNKNOWN, against_best=BELOW_BEST)


FALLEN_OF_SECOND = replace(FALLEN, run=2, against_best=replace(BELOW_BEST, run=1))


OFF = "Looks are off: set `probe.share` above 0, restart the proxy"


BETTER = "Better by 0.21 (0.12 to 0.30)"
WORSE = "Worse by 0.21 (0.12 to 0.30)"


WON = "Better: wins 0.64 of the comparisons (0.55 to 0.73)"
NOT_KNOWN = "+0.04 (-0.09 to +0.17), about 490 more samples"


BELOW = "0.07 less (0.05 to 0.10) than at step 86"


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        (compared(), f"{BETTER} than at step 1, on 64 shipped prompts"),
        (compared(outcome="worse"), f"{WORSE} than at step 1, on 64 shipped prompts"),
        (compared(outcome="unknown"), f"Not known yet: {NOT_KNOWN}"),
        (compared(verdict=verdict("unknown", more=None)), "Not known yet: +0.04 (-0.09 to +0.17)"),
        (compared(verdict=verdict(prompts=1)), f"{BETTER} than at step 1, on 1 shipped prompt"),
        (
            (replace(probe_set(), source="some/where/sums.jsonl"), baseline(), look("l1", 12)),
            f"{BETTER} than at step 1, on 64 prompts of sums.jsonl",
        ),
        (
            (baseline(mode="wins"), look("l1", 12, mode="wins", verdict=WINS)),
            f"{WON} against step 1, on 64 prompts",
        ),
        (
            (baseline(step=None, mode="wins"), look("l1", 12, mode="wins", verdict=WINS)),
            f"{WON} against the baseline, on 64 prompts",
        ),
        # a verdict of another step, engine run or training run names it
        ((*ROLLING, baseline(), look("l1", 12)), f"{BETTER} than at step 1, on 64 prompts"),
        (
            (*ROLLING, baseline(), look("l1", 9)),
            f"{BETTER} at step 9 than at step 1, on 64 prompts",
        ),
        (
            (*ROLLING, baseline(), look("l1", 9, outcome="unknown")),
            f"Not known yet at step 9: {NOT_KNOWN}",
        ),
        (
            (*ROLLING, baseline(), look("l1", 12), *AGAIN),
            f"{BETTER} at step 12 than at step 1, on 64 prompts",
        ),
        (OF_FIRST, f"{BETTER} than at step 1, on 64 prompts"),
        ((*OF_FIRST, *AGAIN, FIRST), f"{BETTER} than at step 1, on 64 prompts"),
        (
            (*OF_FIRST, *AGAIN, SECOND),
            f"{BETTER} at step 12 of training run 1 than at step 1, on 64 prompts",
        ),
        (
            (*OF_FIRST, *AGAIN, SECOND, look("l2", 12, run=2)),
            f"{BETTER} than at step 1 of training run 1, on 64 prompts",
        ),
        # a policy below its best step is not merely unknown
        (
            (*BASE, FALLEN),
            f"Below its best: {BELOW}; than at step 1 not known yet: +0.04 (-0.00 to +0.08)",
        ),
        (
            (*ROLLING, baseline(run=1), FALLEN_OF_SECOND),
            f"At step 146 below its best: {BELOW} of training run 1; than at step 1 of training "
            "run 1 not known yet: +0.04 (-0.00 to +0.08)",
        ),
        ((*looks(), baseline("b2", 12)), "Baseline taken at step 12; the verdict follows the next"),
    ],
)
def test_a_verdict_is_one_sentence(events: list[Event], sentence: str) -> None:
    result = at(*events)
    assert result.sentence.removesuffix(" look") == sentence
    assert result.outcome in ("worse", "unknown") or sentence.startswith("Better")
    assert (result.look is None) == ("follows the next" in sentence)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "The probe set is not known yet"),
        ([probe_set(error="a.jsonl is empty")], "No probe set: a.jsonl is empty"),
        ([probe_set(error="no probe set: set `probe.file`")], "No probe set: set `probe.file`"),
        ([probe_set()], "No look yet: the first one, at 4 prompts, is the baseline"),
        ([probe_set(enabled=False)], OFF),
        ([probe_set("a.jsonl is empty", enabled=False)], OFF),
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
    result = at(*events)
    assert (result.sentence, result.outcome) == (words, "unknown")
    assert (result.look is None) == ("look at step 5" not in words)


PAUSED = TrainingPaused(server=SERVER, cause="paused by the operator")


IS_PAUSED = "Training is paused, requests do not train: paused by the operator"


RESTARTED = baseline(restarted="the reward changed")


CUT = broken_look("l2", 14, "cut", "the engine left ROLLING")


FAILED = broken_look("l2", 14, "failed", "the judge\x1b[2J is down")


LOST = probe_set(error="b.jsonl is missing")


@pytest.mark.parametrize(
    ("events", "notes"),
    [
        (compared(), ()),
        (looks(), ()),
        ((*compared(), CUT), ("The look at step 14 was cut short: the engine left",)),
        ((*compared(), FAILED), ("The look at step 14 failed: the judge␛",)),
        ((*compared(), CUT, look("l3", 15)), ()),
        ((RESTARTED, look("l1", 3)), ("New comparison with step 1: the reward changed",)),
        (
            (RESTARTED, LOST),
            ("No probe set: b.jsonl is missing", "New comparison with step 1: the reward"),
        ),
        ([probe_set(enabled=False)], ()),
        ([probe_set("a.jsonl is empty", enabled=False)], ("No probe set: a.jsonl is empty",)),
        ((*looks(), probe_set(enabled=False)), (OFF,)),
        ((probe_set(), PAUSED), (IS_PAUSED,)),
        ((*looks(), CUT, PAUSED), (IS_PAUSED, "The look at step 14 was cut short")),
        (
            (*looks(), baseline("b2", 12)),
            ("Last comparison, at step 12: better by 0.21 (0.12 to 0.30)",),
        ),
        ((*BASE, FALLEN), ()),
        ((*BASE, replace(FALLEN, against_best=replace(BELOW_BEST, high=0.0))), ()),
        *(
            (
                (*BASE, look("l2", 146, outcome=outcome, against_best=BELOW_BEST)),
                (f"Below its best verified step: {BELOW}",),
            )
            for outcome in ("better", "worse")
        ),
    ],
)
def test_notes_name_what_the_sentence_leaves_out(
    events: list[Event], notes: tuple[str, ...]
) -> None:
    shown = at(*events).notes
    assert len(shown) == len(notes)
    assert all(note.startswith(begin) for note, begin in zip(shown, notes, strict=True)), shown
    assert "\x1b" not in "".join(shown)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((RESTARTED, look("l1", 3), *running_look(9)), "Look at step 13: 9 of 512 answers"),
        ((*looks(), *running_look(9, "baseline")), "New baseline at step 13: 9 of 512 answers"),
    ],
)
def test_a_running_look_is_named(events: list[Event], words: str) -> None:
    assert at(*events).running == words


def test_the_first_server_with_a_look_is_shown() -> None:
    servers = [EngineChanged(server=name, state="OFFLINE", step=0) for name in ("a", "b", "c")]
    missing = probe_set(error="none", server="a")
    for events, server in (
        ((), ""),
        (servers, "a"),
        ((*servers, missing, probe_set(server="b")), "b"),
        ((*servers, probe_set(server="b"), baseline(server="c")), "c"),
    ):
        assert progress_server(state_of(*events) if events else State()) == server


@pytest.mark.parametrize(
    ("ended", "outcome", "tone"),
    [
        (FALLEN, "unknown", "worse"),
        (replace(FALLEN, against_best=replace(BELOW_BEST, high=0.0)), "unknown", "unknown"),
        (look("l2", 9, outcome="better", against_best=BELOW_BEST), "better", "better"),
        (look("l2", 9, outcome="worse", against_best=BELOW_BEST), "worse", "worse"),
    ],
)
def test_a_policy_below_its_best_step_has_the_tone_of_a_worse_one(
    ended: Event, outcome: str, tone: str
) -> None:
    result = at(*BASE, ended)
    assert (result.outcome, result.tone) == (outcome, tone)
    assert (result.below_best is None) == (tone == "unknown")


def test_a_rewind_restores_the_best_saved_step_once() -> None:
    best = look("l1", 86, checkpoint="progress-1")
    rewound = Rewound(server=SERVER, look_id="l1", step=86, at=NOW)
    for events, step in (
        ((*BASE, best, FALLEN), "step 86"),
        ((baseline(), look("l1", 86), FALLEN), ""),
        ((baseline(), best, look("l2", 146, verdict=UNKNOWN)), ""),
        ((baseline(), best, FALLEN, rewound), ""),
    ):
        state = state_of(*events)
        assert restores(standing(state, SERVER), state.progress[SERVER]) == step


@pytest.mark.parametrize(
    ("outcome", "tone"), [("better", "unknown"), ("unknown", "worse"), ("worse", "worse")]
)
def test_what_is_worse_outside_the_reward_stands_in_the_sentence(outcome: str, tone: str) -> None:
    polite = PartFigures(part="polite", mean=0.4, before=0.91, outcome="worse", counts=False)
    events = compared(outcome=outcome, parts=PARTS)
    alone = at(*events)
    assert (alone.worse_parts, alone.tone) == ("", outcome), "parts that count are in the verdict"
    result = at(*events, look("l2", 12, outcome=outcome, parts=(*PARTS, polite, RIGHT_FELL)))
    assert result.worse_parts == "polite 0.91 to 0.40, right answers 0.60 to 0.14"
    assert result.sentence == f"{alone.sentence}; worse: {result.worse_parts}"
    assert (result.outcome, result.tone) == (outcome, tone)
