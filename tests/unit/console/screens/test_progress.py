"""The progress measurement: what looks show, and its lines."""

import pytest
from msgspec.structs import replace

from console.screens.overview.sections import overview_line
from console.screens.progress.model import (
    PromptChange,
    look_points,
    ordered_parts,
    part_weights,
    pause_text,
    prompt_changes,
    standing,
)
from console.screens.progress.text import (
    PART_TABLE,
    PROMPTS,
    answers,
    detail_lines,
    head_lines,
    pair_lines,
    parts_lines,
    prompt_columns,
    verdict_lines,
)
from console.session.app_state import Session
from console.text.lines import Line, line_width
from console.text.sections import Room
from core.events import (
    EngineChanged,
    Event,
    LookEnded,
    PartFigures,
    PromptFigures,
    RewardPart,
    TrainingPaused,
    TrainingResumed,
    TrainingRunIdentified,
    TryAnswered,
    TryAsked,
)
from core.events.progress import ProbePrompt
from core.state import RunningLook, State, reduce
from tests.support.checks import missing
from tests.support.looks import (
    PARTS,
    RIGHT_FELL,
    SERVER,
    baseline,
    broken_look,
    fallen_looks,
    figures_of,
    look,
    looks,
    probe_set,
    running_look,
    verdict,
)
from tests.support.sample import HOSTILE, NOW, sample_events, state_of

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
    assert (round(first.change, 2), first.probe.prompt) == (0.7, "What is the capital of France?")
    assert (first.probe.reference, first.texts[1]) == ("Paris", "The capital of France is Paris.")
    assert [change.same_text for change in result] == [False, False, True, False]
    before = [PromptFigures(id=i, rewards=(0.5,), answer=a) for i, a in (("x", "s"), ("y", "t"))]
    now = [PromptFigures(id=i, rewards=(0.5,), answer="s") for i in ("x", "y")]
    equal = state_of(baseline(prompts=tuple(before)), look("l1", 2, prompts=tuple(now)))
    assert [change.id for change in prompt_changes(equal.progress[SERVER])] == ["y", "x"]


def test_samples_are_compared_where_one_side_has_no_greedy_answer() -> None:
    before = (PromptFigures(id="sky", rewards=(0.0,), answer="", example="old sample"),)
    now = (PromptFigures(id="sky", rewards=(1.0,), answer="greedy", example="new sample"),)
    state = state_of(probe_set(), baseline(prompts=before), look("l1", 2, prompts=now))
    change = prompt_changes(state.progress[SERVER])[0]
    assert change.texts == ("old sample", "new sample")


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
    last = ["length", "gate", "still", "repetition"]
    weights = {"reference": 0.8, "style": 0.2, "slight": 0.1}
    assert order(*parts, **weights) == ["reference", "style", "slight", *last]
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


def test_equal_steps_of_two_training_runs_are_distinguished() -> None:
    events = [EngineChanged(server=SERVER, state="ROLLING", step=7)]
    for run in (1, 2):
        names = {"server": SERVER, "try_id": f"t{run}", "at": NOW}
        events += [
            TrainingRunIdentified(server=SERVER, number=run, name=f"chat.{run}"),
            TryAsked(**names, group_id="g", prompt="Capital?", step=7, run=run),
            TryAnswered(**names, text="Paris.", step=7, run=run),
        ]
    state = state_of(*events)
    lines = answers(state.tries, state, NOW, 100)
    assert not missing(plain(lines)[0], "run 1 step 7", "run 2 step 7")
    first = state_of(*events[:4])
    assert "run" not in plain(answers(first.tries, first, NOW, 100))[0]


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def session_of(*events: Event) -> Session:
    session = Session(clock=lambda: NOW)
    session.state = state_of(*events)
    return session


@pytest.mark.parametrize(
    ("outcome", "sign", "tone"),
    [("better", "▲", "$reward-up"), ("worse", "▼", "$reward-down"), ("unknown", "·", "$muted")],
)
def test_a_verdict_has_a_sign_and_a_colour(outcome: str, sign: str, tone: str) -> None:
    result = standing(state_of(baseline(), look("l1", 2, outcome=outcome)), SERVER)
    ((first, first_tone), *_), *_ = verdict_lines(result, 80)
    assert (first, first_tone) == (f"{sign} ", f"bold {tone}")


def test_the_parts_and_prompts_that_a_verdict_leaves_out_are_named() -> None:
    ended = replace(
        looks()[-1],
        look_id="later",
        left_out=(f"helpful{HOSTILE}: a judge costs a call", "2 prompts: too long: p7, p9"),
    )
    state = state_of(*looks(), ended)
    (row,) = [
        row
        for row in plain(detail_lines(standing(state, SERVER), state.progress[SERVER], 400))
        if "scored without" in row
    ]
    assert not missing(row, "scored without helpful", ", 2 prompts")
    assert "\x1b" not in row


def _rows(events: list[Event], width: int = 60) -> list[str]:
    changes = prompt_changes(state_of(*events).progress[SERVER])
    columns = prompt_columns(changes)
    lines = [
        PROMPTS.head(width, columns),
        *(PROMPTS.row(change, width, columns) for change in changes),
    ]
    assert all(line_width(line) <= width for line in lines)
    return plain(lines)


def test_random_samples_are_not_called_another_answer() -> None:
    sampled = [replace(figures, answer="") for figures in figures_of(True)]
    rows = _rows([probe_set(), baseline(), look("l", 12, prompts=tuple(sampled))])
    assert rows[0] == "  change  before    now  prompt"
    assert rows[1] == " ▲ +0.70    0.25   0.95  What is the capital of France?"
    mixed = (*figures_of(True)[:1], *sampled[1:])
    rows = _rows([probe_set(), baseline(), look("l", 12, prompts=mixed)])
    assert rows[1] == " ▲ +0.70    0.25   0.95  other    What is the capital of Fr…"
    assert rows[2] == " ▲ +0.60    0.10   0.70  –        How much is 17 + 25?"


def test_the_bar_replaces_the_note_about_the_running_look() -> None:
    session = session_of(*looks(), *running_look(128), broken_look("x", 14, "cut", "stopped"))
    session.state.progress[SERVER].running = RunningLook(look_id="r", role="look", step=15)
    result = standing(session.state, SERVER)
    rows = plain(head_lines(result, session.state.progress[SERVER], "gpu", session, 90))
    text = "\n".join(rows)
    assert rows[0] == "server gpu"
    assert "look at step 15" in text
    assert "Look at step 15" not in text
    assert "The look at step 14 was cut short: stopped" in text


def test_parts_show_before_now_change_and_verdict() -> None:
    shown = LookEnded(
        look_id="l1",
        role="look",
        outcome="complete",
        parts=(*PARTS[2:], *PARTS[:2]),
        left_out=("diversity: it compares with other answers", "pick"),
    )
    rows = plain([PART_TABLE.head(80), *parts_lines(shown, 80, {})])
    assert rows == [
        " part                            before     now  change  verdict",
        " relevance                        0.420   0.710  +0.290  ▲ better",
        " format                           0.970   0.910  -0.060  ▼ worse",
        " politeness                       0.500   0.520  +0.020  · not known yet",
        " answer length                     24.5    31.0    +6.5",
        " answer repetition                0.030   0.080  +0.050",
        " diversity                       left out: it compares with other answers",
        " pick                            left out",
    ]
    for mean, before, now in ((1e-4, 0.0, "0 0"), (0.0, 1e-4, "0 0")):
        unseen = (PartFigures(part="repetition", mean=mean, before=before),)
        (row,) = plain(parts_lines(replace(shown, parts=unseen, left_out=()), 80, {}))
        assert " ".join(row.split()) == f"answer repetition {now} +0.000"
    alone = (PartFigures(part=HOSTILE, mean=0.5),)
    for width in (50, 60, 80, 200):
        lines = parts_lines(replace(shown, parts=alone, left_out=(HOSTILE,)), width, {})
        assert len(lines) == 2
        assert all(line_width(line) <= width for line in lines)
        assert "\x1b" not in "".join(plain(lines))


def test_a_narrow_pair_stands_one_below_the_other() -> None:
    change = prompt_changes(state_of(*looks()).progress[SERVER])[0]
    rows = pair_lines(change, "step 1", "step 12", 40)
    text = plain(rows)
    before = next(at for at, row in enumerate(text) if row.startswith("BEFORE"))
    now = next(at for at, row in enumerate(text) if row.startswith("NOW"))
    assert before < now
    assert all(line_width(line) <= 40 for line in rows)


def test_a_policy_below_its_best_step_is_shown_as_worse_with_the_key_that_restores_it() -> None:
    session = session_of(*fallen_looks())
    progress = session.state.progress[SERVER]
    rows = head_lines(standing(session.state, SERVER), progress, "", session, 200)
    assert rows[0][0] == ("▼ ", "bold $reward-down")
    assert rows[0][1][0].startswith("Below its best: 0.07 less (0.05 to 0.10) than at step 86; ")
    assert "more samples" not in "".join(plain(rows))
    assert plain(rows)[1] == "  w restores step 86"
    session.observing = True
    rows = head_lines(standing(session.state, SERVER), progress, "", session, 200)
    assert "restores" not in "".join(plain(rows))


def test_the_overview_says_that_right_answers_are_worse() -> None:
    session = session_of(probe_set(), baseline(), look("l1", 12, parts=(RIGHT_FELL,)))
    assert overview_line(session, Room(80, 1, False)).plain == (
        "PROGRESS  · Better by 0.21; worse: right answers 0.60 to 0.14  8 "
    )
    wide = overview_line(session, Room(160, 1, False)).plain
    assert "at step 1, on 64 shipped prompts; worse: right answers 0.60 to 0.14" in wide


def test_the_overview_says_that_a_policy_is_below_its_best_step() -> None:
    session = session_of(*fallen_looks())
    assert overview_line(session, Room(80, 1, False)).plain == (
        "PROGRESS  ▼ Below its best: 0.07 less (0.05 to 0.10) than at step 86  8 "
    )
    wide = overview_line(session, Room(160, 1, False)).plain
    assert "at step 86; than at step 1 not known yet: +0.04" in wide
    better = overview_line(session_of(*fallen_looks("better")), Room(160, 1, False)).plain
    assert not missing(better, "▲ Better by 0.21", "Below its best verified step: 0.07 less")
    assert overview_line(session_of(*fallen_looks("better")), Room(80, 1, False)).plain == (
        "PROGRESS  ▲ Better by 0.21 (0.12 to 0.30) than at step 1, 0.07 below step 86  8 "
    )


def test_an_empty_answer_is_named_and_comparisons_have_wins() -> None:
    probe = ProbePrompt(id="a", prompt="p", reference=HOSTILE)
    now = PromptFigures(id="a", rewards=(1.0,) * 20, example=HOSTILE)
    change = PromptChange(probe, PromptFigures(id="a"), now, wins=True)
    text = "\n".join(plain(pair_lines(change, "", "step 12", 60)))
    assert not missing(text, "(empty)", "wins 1.00")
    assert "\x1b" not in text
