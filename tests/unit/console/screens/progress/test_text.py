"""Lines about the progress: verdict, running look, parts, prompts, both answers of a prompt."""

import pytest
from msgspec.structs import replace

from console.screens.progress.model import PromptChange, has_progress, prompt_changes, standing
from console.screens.progress.summary import overview_line
from console.screens.progress.text import (
    detail_lines,
    head_lines,
    pair_lines,
    parts_head,
    parts_lines,
    prompt_columns,
    prompt_line,
    prompts_head,
    running_line,
    running_time,
    verdict_lines,
)
from console.session.app_state import Session
from console.text.diff import GONE, OWN
from console.text.lines import Line, line_width
from console.text.sections import Room
from core.events import Event, LookEnded, PartFigures
from core.state import RunningLook
from tests.support.checks import missing
from tests.support.looks import (
    BELOW_BEST,
    PARTS,
    RIGHT_FELL,
    SERVER,
    baseline,
    broken_look,
    figures_of,
    look,
    looks,
    probe_set,
    running_look,
)
from tests.support.sample import HOSTILE, NOW, state_of


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


def test_a_long_sentence_is_wrapped_not_cut() -> None:
    result = standing(state_of(*looks()), SERVER)
    rows = plain(verdict_lines(result, 40))
    assert len(rows) == 2
    assert all(len(row) <= 40 for row in rows)
    assert " ".join(row.strip() for row in rows).endswith("on 64 shipped prompts")


def test_figures_and_notes_stand_below_the_verdict() -> None:
    state = state_of(*looks(), broken_look("x", 14, "failed", HOSTILE))
    rows = detail_lines(standing(state, SERVER), state.progress[SERVER], 200)
    text = "\n".join(plain(rows))
    assert not missing(
        text,
        "now 0.62 (0.55 to 0.69)   before 0.41 (0.35 to 0.47)   1,024 samples   look 3",
        "! The look at step 14 failed: [/b][red]",
    )
    assert "\x1b" not in text


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
    lines = [prompts_head(width, columns), *(prompt_line(one, width, columns) for one in changes)]
    assert all(line_width(line) <= width for line in lines)
    return plain(lines)


def test_comparisons_have_no_column_of_before() -> None:
    rows = _rows([probe_set(), baseline(mode="wins"), look("l", 12, mode="wins")])
    assert rows[0] == "  change   wins  answer   prompt"
    assert rows[1] == " ▲ +0.45   0.95  other    What is the capital of France?"
    assert "–" not in "".join(rows)


def test_random_samples_are_not_called_another_answer() -> None:
    sampled = [replace(one, answer="") for one in figures_of(True)]
    rows = _rows([probe_set(), baseline(), look("l", 12, prompts=tuple(sampled))])
    assert rows[0] == "  change  before    now  prompt"
    assert rows[1] == " ▲ +0.70    0.25   0.95  What is the capital of France?"
    mixed = (*figures_of(True)[:1], *sampled[1:])
    rows = _rows([probe_set(), baseline(), look("l", 12, prompts=mixed)])
    assert rows[1] == " ▲ +0.70    0.25   0.95  other    What is the capital of Fr…"
    assert rows[2] == " ▲ +0.60    0.10   0.70  –        How much is 17 + 25?"


def test_the_running_look_has_a_bar_with_the_time_left() -> None:
    running = RunningLook(look_id="r", role="look", step=13, samples=512, done=128, since=NOW - 10)
    line = running_line(running, NOW, 80)
    assert plain([line]) == [
        "  look at step 13 █████░░░░░░░░░░░░░░░ 128/512 answers  about 30 s left"
    ]
    assert any("$primary" in tone for _, tone in line)
    slow = RunningLook(look_id="r", role="look", samples=512, done=128, since=NOW - 100)
    assert plain([running_line(slow, NOW, 80)])[0].endswith(" 128/512 answers  about 5m00 left")
    unknown = RunningLook(look_id="r", role="baseline", done=3, since=NOW)
    assert plain([running_line(unknown, NOW, 80)])[0].endswith(" 3/? answers")


def test_a_look_without_answers_shows_how_long_it_has_been_running() -> None:
    first = RunningLook(look_id="r", role="baseline", step=1, samples=112, since=NOW - 12)
    assert plain([running_line(first, NOW, 80)])[0].endswith(" 0/112 answers  12s")
    assert (running_time(first, NOW + 60), running_time(first, NOW - 12)) == ("1m12", "")
    first.done = 112
    assert running_time(first, NOW) == ""  # the answers are compared


def test_overview_has_the_time_of_the_first_look() -> None:
    session = session_of(*running_look(0, "baseline", step=1))
    assert "First look: 0 of 512 answers, 8s  8" in overview_line(session, Room(80, 1, False)).plain
    session = session_of(*running_look(128, "baseline", step=1))
    line = overview_line(session, Room(80, 1, False)).plain
    assert "First look: 128 of 512 answers, about 24 s left  8" in line


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
    rows = plain([parts_head(80), *parts_lines(shown, 80, {})])
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
    unseen = (PartFigures(part="repetition", mean=1e-4, before=0.0),)
    shown = replace(shown, parts=unseen, left_out=())
    assert plain(parts_lines(shown, 80, {}))[0].split() == [
        "answer",
        "repetition",
        "0",
        "0",
        "+0.000",
    ]
    shown = replace(shown, parts=(PartFigures(part="repetition", mean=0.0, before=1e-4),))
    assert plain(parts_lines(shown, 80, {}))[0].split()[-1] == "+0.000"
    alone = PartFigures(part=HOSTILE, mean=0.5)
    for width in (50, 60, 80, 200):
        shown = replace(shown, parts=(alone,), left_out=(HOSTILE,))
        line, left_out = parts_lines(shown, width, {})
        assert line_width(left_out) <= width
        assert "\x1b" not in plain([left_out])[0]
        assert line_width(line) <= width
        assert "\x1b" not in plain([line])[0]


def test_a_prompt_shows_its_change_and_whether_the_answer_changed() -> None:
    changes = prompt_changes(state_of(*looks()).progress[SERVER])
    assert plain([prompt_line(one, 60) for one in changes]) == [
        " ▲ +0.70    0.25   0.95  other    What is the capital of Fr…",
        " ▲ +0.60    0.10   0.70  other    How much is 17 + 25?",
        " ▼ -0.20    0.40   0.20  same     Write a haiku about rain.",
        " ▲ +0.10    0.55   0.65  other    Why is the sky blue?",
    ]
    assert plain([prompts_head(60)]) == ["  change  before    now  answer   prompt"]
    even = PromptChange("a", HOSTILE, "", None, 0.5, "x", "x")
    line = prompt_line(even, 60)
    assert plain([line])[0].startswith(" ·  0.00       –   0.50  same ")
    assert "\x1b" not in plain([line])[0]
    assert line_width(line) <= 60


def test_both_answers_stand_side_by_side_with_a_word_diff() -> None:
    one = prompt_changes(state_of(*looks()).progress[SERVER])[1]
    rows = pair_lines(one, "step 1", "step 12", 80)
    text = plain(rows)
    assert (text[0], text[1]) == ("prompt    How much is 17 + 25?", "reference 42")
    assert "BEFORE  step 1  0.10" in text[3]
    assert "NOW  step 12  0.70" in text[3]
    assert "rewards 0.10 0.10" in text[4]
    assert text[5].startswith("17 + 25 is 32.")
    tones = {tone: words for line in rows for words, tone in line}
    assert OWN in tones
    assert GONE in tones
    assert all(line_width(line) <= 80 for line in rows)


def test_a_narrow_pair_stands_one_below_the_other() -> None:
    one = prompt_changes(state_of(*looks()).progress[SERVER])[0]
    rows = pair_lines(one, "step 1", "step 12", 40)
    text = plain(rows)
    before = next(at for at, row in enumerate(text) if row.startswith("BEFORE"))
    now = next(at for at, row in enumerate(text) if row.startswith("NOW"))
    assert before < now
    assert all(line_width(line) <= 40 for line in rows)


def test_hostile_and_empty_answers_are_shown_as_text() -> None:
    one = PromptChange("a", HOSTILE * 40, HOSTILE, None, 1.0, "", HOSTILE, (), (1.0,) * 20)
    rows = pair_lines(one, "", "step 12", 60)
    text = "\n".join(plain(rows))
    assert not missing(text, "(empty)", "wins 1.00")
    assert "\x1b" not in text
    assert "…" in text, "a long prompt is shortened"
    assert all(line_width(line) <= 60 for line in rows)
    assert "(empty)" in "\n".join(plain(pair_lines(_swapped(one), "", "", 60)))


def _swapped(one: PromptChange) -> PromptChange:
    return PromptChange(one.id, "p", "", 0.1, 0.2, "text", "")


def test_overview_has_the_sentence_in_one_line() -> None:
    room = Room(80, 1, False)
    session = session_of(*looks())
    assert has_progress(session.state)
    assert overview_line(session, room).plain == (
        "PROGRESS  ▲ Better by 0.21 than at step 1, on 64 shipped prompts  8 "
    )
    short = overview_line(session, Room(50, 1, False)).plain
    assert len(short) <= 50
    assert short.endswith("…  8 ")
    old = session_of(*looks())
    old.state.servers[SERVER].step = 99
    assert overview_line(old, room).plain == (
        "PROGRESS  ▲ Better by 0.21 at step 12 than at step 1, on 64 shipped prompts  8 "
    )
    running = session_of(*looks(), *running_look(9))
    wide = overview_line(running, Room(140, 1, False)).plain
    assert "on 64 shipped prompts. Look at step 13: 9 of 512 answers  8 " in wide
    assert not has_progress(session_of().state)


def _fallen(outcome: str = "unknown") -> list[Event]:
    best = look("l1", 86, checkpoint="progress-1")
    return [
        probe_set(),
        baseline(),
        best,
        look("l2", 146, outcome=outcome, against_best=BELOW_BEST),
    ]


def test_a_policy_below_its_best_step_is_shown_as_worse_with_the_key_that_restores_it() -> None:
    session = session_of(*_fallen())
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
    session = session_of(*_fallen())
    assert overview_line(session, Room(80, 1, False)).plain == (
        "PROGRESS  ▼ Below its best: 0.07 less (0.05 to 0.10) than at step 86  8 "
    )
    wide = overview_line(session, Room(160, 1, False)).plain
    assert "at step 86; than at step 1 not known yet: +0.04" in wide
    better = overview_line(session_of(*_fallen("better")), Room(160, 1, False)).plain
    assert not missing(better, "▲ Better by 0.21", "Below its best verified step: 0.07 less")
    assert overview_line(session_of(*_fallen("better")), Room(80, 1, False)).plain == (
        "PROGRESS  ▲ Better by 0.21 (0.12 to 0.30) than at step 1, 0.07 below step 86  8 "
    )
