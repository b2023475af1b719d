"""The progress as lines: verdict, running look, parts, prompts, answers side by side."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.screens.progress.model import (
    TRAITS,
    PromptChange,
    Standing,
    bias_sentence,
    ordered_parts,
    ratings_sentence,
    restores,
)
from console.session.app_state import Session
from console.text.diff import word_diff
from console.text.format import UNKNOWN, duration, elapsed, figure, filled, number, server_color
from console.text.lines import EMPTY, Line, fit, flow, line_width
from console.text.wrap import wrapped
from console.ui.table import Cell, Column, Table
from core.events import LookEnded, PartFigures
from core.state import Progress, RunningLook
from core.verdict.conclusion import Outcome

SIGNS: dict[Outcome, tuple[str, str]] = {
    "better": ("▲", "$reward-up"),
    "worse": ("▼", "$reward-down"),
    "unknown": ("·", "$muted"),
}
"""Sign and colour of an outcome."""
_BAR = 20
_MINUTES = 120
"""Seconds from which the time left is shown in minutes."""
_OUTCOMES = {
    "better": ("▲ better", "$reward-up"),
    "worse": ("▼ worse", "$reward-down"),
    "unknown": ("· not known yet", "$muted"),
    "": ("", ""),
}
_GAP = " │ "
BESIDE = 50
"""Minimum width in cells of two columns; narrower answers are drawn below one another."""
_MOST_REWARDS = 16
BLIND_BESIDE = 100
"""The same for the answers of a blind pair."""
_MOST_ROWS = 8
"""Maximum rows of a prompt or a reference."""
_SIGNS = {
    "now": ("▲ you chose the current answer", "bold $reward-up"),
    "before": ("▼ you chose the answer of before", "bold $reward-down"),
    "tie": ("= neither is better", "bold"),
    "skip": ("· skipped", "$muted"),
}


def verdict_lines(present: Standing, width: int) -> list[Line]:
    """Return the sentence of the verdict, with its sign and colour."""
    sign, tone = SIGNS[present.tone]
    shown = f"bold {tone}" if present.tone != "unknown" else "bold"
    return [
        (((f"{sign} " if at == 0 else "  "), f"bold {tone}"), (text, shown))
        for at, text in enumerate(wrapped(present.sentence, max(10, width - 2)))
    ]


def detail_lines(present: Standing, progress: Progress | None, width: int) -> list[Line]:
    """Return the figures behind the verdict, the raters' win rate, notes."""
    pieces: list[Line] = []
    look, baseline = present.look, present.baseline
    if baseline is not None and look is not None:
        pieces.append(_look_mean("now", look))
        if look.mode == "absolute":
            pieces.append(_look_mean("before", baseline))
        if look.verdict is not None:
            pieces.append(((f"{look.verdict.samples:,} samples", ""),))
            pieces.append((("look ", "$muted"), (f"{look.verdict.look}", "")))
        if progress is not None and (best := progress.best) is not None:
            step = "?" if best.step is None else f"step {best.step}"
            pieces.append((("best verified ", "$muted"), (step, "")))
    probe_set = progress.probe_set if progress is not None else None
    if probe_set is not None and not probe_set.error:
        source = one_line(probe_set.source or UNKNOWN, 60)
        count = f", {len(probe_set.prompts)} prompts" if look is None else ""
        pieces.append((("probe set ", "$muted"), (f"{source}{count}", "")))
    if baseline is not None and (version := (look or baseline).reward):
        pieces.append((("reward ", "$muted"), (one_line(version, 16), "")))
    if (shown := look or baseline) is not None and shown.left_out:
        names = ", ".join(name.partition(":")[0] for name in shown.left_out)
        pieces.append((("scored without ", "$muted"), (one_line(names, 80), "")))
    room = max(10, width - 2)
    sentences = (ratings_sentence(progress), bias_sentence(progress))
    return [
        *((("  ", ""), *line) for line in flow(pieces, room)),
        *((("  ", ""), (row, "")) for text in sentences if text for row in wrapped(text, room)),
        *note_lines(present.notes, width),
    ]


def _look_mean(word: str, look: LookEnded) -> Line:
    word = "win rate" if look.mode == "wins" else word
    limits = f" ({number(look.low)} to {number(look.high)})"
    return ((f"{word} ", "$muted"), (number(look.mean), "bold"), (limits, ""))


def note_lines(notes: Sequence[str], width: int) -> list[Line]:
    """Return further sentences, one each, wrapped."""
    return [
        ((f"{'! ' if at == 0 else '  '}", "$warning"), (text, "$muted"))
        for note in notes
        for at, text in enumerate(wrapped(note, max(10, width - 2)))
    ]


def head_lines(
    present: Standing, progress: Progress | None, name: str, session: Session, width: int
) -> list[Line]:
    """Return the verdict, its figures, the bar of the running look and the notes.

    Args:
        present: The verdict.
        progress: The progress of the server; None without one.
        name: Name of the server if there are several; else empty.
        session: The session.
        width: Cells.
    """
    rows = verdict_lines(present, width)
    running = progress.running if progress is not None else None
    if running is not None:
        rows.append(running_line(running, session.as_of, width))
    if (step := restores(present, progress)) and not (context := context_of(session)).read_only:
        key = (context.keys["progress.rewind"], "bold $accent")
        rows.append((("  ", ""), key, (f" restores {step}", "")))
    rows += detail_lines(present, progress, width)
    if name:
        color = server_color(session.state, name)
        rows.insert(0, (("server ", "$muted"), (one_line(name, 40), f"bold {color}")))
    return rows


def running_line(running: RunningLook, now: float, width: int) -> Line:
    """Return the progress of a look as a bar: done, total, time left or time so far."""
    total, room = running.samples, max(6, min(_BAR, width - 40))
    done = filled(running.done / total, room) if total else ""
    drawn = (done, "$primary"), (("░" if total else "┈") * (room - len(done)), "$faint")
    time = running_time(running, now)
    word = "baseline" if running.role == "baseline" else "look"
    step = "" if running.step is None else f" at step {running.step}"
    return (
        (f"  {word}{step} ", "$muted"),
        *drawn,
        (f" {running.done}/{total or '?'}", "bold"),
        (f" answers{'  ' if time else ''}{time}", "$muted"),
    )


def running_time(running: RunningLook, now: float) -> str:
    """Return the time left of a look; before its first answers, how long it has been running."""
    passed, total = now - running.since, running.samples
    if passed <= 0 or (total and running.done >= total):
        return ""
    if not (total and running.done):
        return elapsed(passed)
    left = passed / running.done * (total - running.done)
    return f"about {round(left)} s left" if left < _MINUTES else f"about {duration(left)} left"


# --- parts -------------------------------------------------------------------------------------


def parts_lines(look: LookEnded, width: int, weights: Mapping[str, float]) -> list[Line]:
    """Return a row for each part: mean before and now, change, verdict.

    They are in the order of `ordered_parts`; the parts that are left out of a look, with the
    reason, come last.

    Args:
        look: The look.
        width: Cells of a line.
        weights: Weight of each part in the reward; may be empty.
    """
    rows = ordered_parts(look, weights)
    return [
        *(PART_TABLE.row(part, width) for part in rows),
        *(_left_out(left_out, width) for left_out in look.left_out),
    ]


def _left_out(text: str, width: int) -> Line:
    name, _, why = one_line(text, 200).partition(": ")
    room = PART_TABLE.fitted(width)[0][1]
    reason = f"left out{': ' if why else ''}{why}"
    return ((f" {fit(name, room)}", "$muted"), (fit(f"  {reason}", width - room - 1), "$muted"))


def _part_name(figures: PartFigures) -> str:
    return one_line(figures.part if figures.outcome else TRAITS.get(figures.part, figures.part), 60)


def _verdict(figures: PartFigures) -> Cell:
    words, tone = _OUTCOMES.get(figures.outcome, _OUTCOMES[""])
    return f"  {words}", tone


def _mean(value: float | None) -> str:
    """Return a mean with three places at most, without an exponent for a small one."""
    return figure(value if value is None or abs(value) >= 10 else round(value, 3))


def _change(figures: PartFigures) -> str:
    """Return the difference with its sign and as many places as its figures have."""
    if figures.before is None:
        return UNKNOWN
    places = 3 if max(abs(figures.before), abs(figures.mean)) < 10 else 1
    change = round(figures.mean - figures.before, places) + 0.0  # no minus for a change of 0
    return f"{change:+.{places}f}"


PART_TABLE: Table[PartFigures] = Table(
    (
        Column("part", 8, _part_name, most=30),
        Column("before", 8, lambda figures: _mean(figures.before), "$muted", right=True),
        Column("now", 8, lambda figures: _mean(figures.mean), "bold", right=True),
        Column("change", 8, _change, right=True),
        Column("  verdict", 17, _verdict),
    ),
    start=" ",
    gap="",
)


def no_parts(width: int) -> Line:
    """Return what the table of the parts will show."""
    words = " Parts before and now: from the first look on"
    return ((fit(words, width), "$muted"),)


# --- prompts -----------------------------------------------------------------------------------


def prompt_columns(changes: Sequence[PromptChange]) -> tuple[str, ...]:
    """Return the titles of the columns that have no content for these prompts.

    Comparisons have no mean of the baseline: what they count is a win over it. Not every server can
    sample the likeliest answer.
    """
    absolute = any(change.before is not None for change in changes)
    means = ("wins",) if absolute else ("before", "now")
    likeliest = any(change.likeliest for change in changes)
    return means if likeliest else (*means, "  answer")


def _changed(change: PromptChange) -> tuple[str, str]:
    """Return the change of the mean and its colour."""
    rounded = round(change.change, 2)
    if not rounded:
        return "·  0.00", "bold $muted"
    sign, tone = ("▲", "$reward-up") if rounded > 0 else ("▼", "$reward-down")
    return f"{sign} {rounded:+.2f}", f"bold {tone}"


def _same_answer(change: PromptChange) -> str:
    return f"  {UNKNOWN if not change.likeliest else 'same' if change.same_text else 'other'}"


PROMPTS: Table[PromptChange] = Table(
    (
        Column(" change", 7, _changed),
        Column("before", 8, lambda change: number(change.before), right=True),
        Column("now", 7, lambda change: f"{change.now:.2f}", right=True),
        Column("wins", 7, lambda change: f"{change.now:.2f}", right=True),
        Column("  answer", 9, _same_answer, "$muted"),
        Column("  prompt", 8, lambda change: f"  {one_line(change.prompt, 300)}", most=999),
    ),
    start=" ",
    gap="",
)


def no_prompts(width: int) -> Line:
    """Return what the list of prompts will show."""
    words = " Prompts that changed most: from the first look on"
    return ((fit(words, width), "$muted"),)


def prompt_pair(change: PromptChange, progress: Progress, width: int) -> list[Line]:
    """Return a prompt with its answers in the baseline and in the newest look."""
    look, baseline = progress.current, progress.baseline
    before, now = (
        f"step {shown.step}" if shown is not None and shown.step is not None else ""
        for shown in (baseline, look)
    )
    return pair_lines(change, before, now, width)


# --- one prompt ---


def pair_lines(change: PromptChange, step_before: str, step_now: str, width: int) -> list[Line]:
    """Return prompt, reference and both answers.

    In the present answer, shared words are dimmed, its own are underlined, missing ones are struck
    through.

    Args:
        change: The prompt.
        step_before: Words about the step of the baseline, such as `step 1`.
        step_now: The same for the look.
        width: Total width in cells.
    """
    head = _labelled("prompt", change.prompt, width)
    if change.reference:
        head += _labelled("reference", change.reference, width)
    beside = width >= BESIDE
    room = (width - len(_GAP)) // 2 if beside else width
    before = [
        _title("BEFORE", step_before, change.before),
        *_rewards(change.rewards_before, room),
        *(((text, ""),) for text in wrapped(change.text_before, room) or ["(empty)"]),
    ]
    now = [
        _title("NOW", step_now, change.now, wins=change.before is None),
        *_rewards(change.rewards_now, room),
        *_answer_now(change, room),
    ]
    return [*head, EMPTY, *_together(before, now, room, beside)]


def _together(left: Sequence[Line], right: Sequence[Line], room: int, beside: bool) -> list[Line]:
    """Return two texts side by side, the left one in `room` cells, or one below the other."""
    if not beside:
        return [*left, EMPTY, *right]
    return [
        (*before, (" " * max(0, room - line_width(before)), ""), (_GAP, "$faint"), *now)
        for before, now in zip_longest(left, right, fillvalue=EMPTY)
    ]


def _answer_now(change: PromptChange, room: int) -> list[Line]:
    if not change.text_now:
        return [(("(empty)", ""),)]
    if not change.text_before:
        return [((text, ""),) for text in wrapped(change.text_now, room)]
    return list(word_diff(change.text_before, change.text_now, room))


def _labelled(label: str, text: str, width: int, size: int = len("reference ")) -> list[Line]:
    """Return a text behind its label, in at most eight lines."""
    rows = wrapped(text, max(10, width - size))
    if len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
    tone = "bold" if label == "prompt" else ""
    return [
        ((f"{label if at == 0 else '':<{size}}", "$muted"), (row, tone))
        for at, row in enumerate(rows)
    ]


def _title(word: str, step: str, mean: float | None, wins: bool = False) -> Line:
    figures = f"  {'wins ' if wins else ''}{number(mean)}" if mean is not None else ""
    return ((word, "bold $heading"), (f"  {one_line(step, 30)}", "$muted"), (figures, "bold"))


def _rewards(rewards: tuple[float, ...], room: int) -> list[Line]:
    if not rewards:
        return []
    shown = " ".join(number(reward) for reward in rewards[:_MOST_REWARDS])
    more = " …" if len(rewards) > _MOST_REWARDS else ""
    return [((row, "$muted"),) for row in wrapped(f"rewards {shown}{more}", room)]


# --- blind pairs -------------------------------------------------------------------------------


def blind_title(pair: Mapping[str, Any], vote: Mapping[str, Any] | None, width: int) -> list[Line]:
    """Return what is compared and, after the vote, what was chosen and the ratings so far.

    Args:
        pair: Data of the command `progress.pair`.
        vote: Data of the command `progress.vote`; None before the vote.
        width: Width in cells.
    """
    steps = f"{_step(pair['step'])} and {_step(pair['baseline_step'])}, in random order"
    if pair["newest_step"] != pair["step"]:
        steps += f"; the newest look is of {_step(pair['newest_step'])}"
    done = pair["ratings"] if vote is None else vote["ratings"]
    head = (f" {steps}, {done} rated", "$muted")
    lines: list[Line] = [(("BLIND PAIR ", "bold $heading"), head)]
    if vote is None:
        return lines
    lines.append((_SIGNS[vote["result"]], (_automatic(vote), "$muted")))
    return [*lines, *(((row, ""),) for row in wrapped(vote["sentence"], max(10, width)))]


def blind_answers(
    pair: Mapping[str, Any], vote: Mapping[str, Any] | None, width: int
) -> list[Line]:
    """Return the prompt and both answers; arguments as of `blind_title`."""
    beside = width >= BLIND_BESIDE
    room = (width - len(_GAP)) // 2 if beside else width
    sides: list[list[Line]] = []
    for key, side in (("1", "left"), ("2", "right")):
        which = ""
        if vote is not None:
            step = vote["step"] if vote[side] == "now" else vote["baseline_step"]
            which = f"  {vote[side].upper()}, {_step(step)}"
        head: Line = (("ANSWER ", "bold $heading"), (key, "bold $accent"), (which, "bold $heading"))
        sides.append([head, *(((row, ""),) for row in wrapped(pair[side], room) or ["(empty)"])])
    prompt = _labelled("prompt", pair["prompt"], width, len("prompt  "))
    return [*prompt, EMPTY, *_together(sides[0], sides[1], room, beside)]


def _automatic(vote: Mapping[str, Any]) -> str:
    words = {1.0: "now", 0.5: "neither", 0.0: "before"}
    return f"   by its reward: {words[vote['automatic']]}" if vote["automatic"] is not None else ""


def _step(step: int | None) -> str:
    return "an unknown step" if step is None else f"step {step}"
