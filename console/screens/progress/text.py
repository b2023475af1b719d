"""The progress as lines: verdict, running look, parts, prompts, answers, tried prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from ajet_swarm.common.text import one_line, plural
from console.models.advice import context_of
from console.screens.progress import model
from console.session.app_state import Session
from console.text.diff import word_diff
from console.text.format import (
    UNKNOWN,
    clock,
    duration,
    elapsed,
    figure,
    filled,
    lost_text,
    number,
    server_color,
)
from console.text.lines import EMPTY, Line, fit, flow, line_width
from console.text.tool_calls import calls_text
from console.text.wrap import wrapped, wrapped_lines
from console.ui.table import Cell, Column, Table
from core.events import LookEnded, PartFigures
from core.state import Probe, Progress, RunningLook, State
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

_GAP = " │ "
BESIDE = 50
"""Minimum width in cells of two columns; narrower answers are drawn below one another."""
_MOST_REWARDS = 16
NARROWEST = 36
"""Fewest cells of a column of answers."""
MAX_COLUMNS = 3
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


def verdict_lines(present: model.Standing, width: int) -> list[Line]:
    """Return the sentence of the verdict, with its sign and colour."""
    sign, tone = SIGNS[present.tone]
    shown = f"bold {tone}" if present.tone != "unknown" else "bold"
    return _hanging(f"{sign} ", present.sentence, width, f"bold {tone}", shown)


def detail_lines(present: model.Standing, progress: Progress | None, width: int) -> list[Line]:
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
    sentences = (model.ratings_sentence(progress), model.bias_sentence(progress))
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
    return [line for note in notes for line in _hanging("! ", note, width, "$warning", "$muted")]


def _hanging(head: str, text: str, width: int, head_tone: str, tone: str) -> list[Line]:
    """Return a text behind what stands in front of its first row."""
    rows = wrapped(text, max(10, width - len(head)))
    heads = (head, *(" " * len(head) for _ in rows[1:]))
    return [((start, head_tone), (row, tone)) for start, row in zip(heads, rows, strict=False)]


def head_lines(
    present: model.Standing, progress: Progress | None, name: str, session: Session, width: int
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
    if (step := model.restores(present, progress)) and not (
        context := context_of(session)
    ).read_only:
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
    rows = model.ordered_parts(look, weights)
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
    return one_line(
        figures.part if figures.outcome else model.TRAITS.get(figures.part, figures.part), 60
    )


def _verdict(figures: PartFigures) -> Cell:
    if figures.outcome not in SIGNS:
        return "  ", ""
    sign, tone = SIGNS[figures.outcome]
    return f"  {sign} {figures.outcome.replace('unknown', 'not known yet')}", tone


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


# --- prompts -----------------------------------------------------------------------------------


def prompt_columns(changes: Sequence[model.PromptChange]) -> tuple[str, ...]:
    """Return the titles of the columns that have no content for these prompts.

    Comparisons have no mean of the baseline: what they count is a win over it. Not every server can
    sample the likeliest answer.
    """
    absolute = any(change.before is not None for change in changes)
    means = ("wins",) if absolute else ("before", "now")
    likeliest = any(change.likeliest for change in changes)
    return means if likeliest else (*means, "  answer")


def _changed(change: model.PromptChange) -> tuple[str, str]:
    """Return the change of the mean and its colour."""
    rounded = round(change.change, 2)
    if not rounded:
        return "·  0.00", "bold $muted"
    sign, tone = ("▲", "$reward-up") if rounded > 0 else ("▼", "$reward-down")
    return f"{sign} {rounded:+.2f}", f"bold {tone}"


def _same_answer(change: model.PromptChange) -> str:
    return f"  {UNKNOWN if not change.likeliest else 'same' if change.same_text else 'other'}"


PROMPTS: Table[model.PromptChange] = Table(
    (
        Column(" change", 7, _changed),
        Column("before", 8, lambda change: number(change.before), right=True),
        Column("now", 7, lambda change: f"{change.now:.2f}", right=True),
        Column("wins", 7, lambda change: f"{change.now:.2f}", right=True),
        Column("  answer", 9, _same_answer, "$muted"),
        Column("  prompt", 8, lambda change: f"  {one_line(change.probe.prompt, 300)}", most=999),
    ),
    start=" ",
    gap="",
)


def first_look(what: str, width: int) -> Line:
    """Return what a table will show from the first look on."""
    return ((fit(f" {what}: from the first look on", width), "$muted"),)


def prompt_pair(change: model.PromptChange, progress: Progress, width: int) -> list[Line]:
    """Return a prompt with its answers in the baseline and in the newest look."""
    before, now = (
        f"step {look.step}" if look is not None and look.step is not None else ""
        for look in (progress.baseline, progress.current)
    )
    return pair_lines(change, before, now, width)


# --- one prompt ---


def pair_lines(
    change: model.PromptChange, step_before: str, step_now: str, width: int
) -> list[Line]:
    """Return prompt, reference and both answers.

    In the present answer, shared words are dimmed, its own are underlined, missing ones are struck
    through.

    Args:
        change: The prompt.
        step_before: Words about the step of the baseline, such as `step 1`.
        step_now: The same for the look.
        width: Total width in cells.
    """
    head = _labelled("prompt", change.probe.prompt, width)
    if change.probe.reference:
        head += _labelled("reference", change.probe.reference, width)
    beside, (text_before, text_now) = width >= BESIDE, change.texts
    room = (width - len(_GAP)) // 2 if beside else width
    compares = bool(text_before and text_now)
    before = [
        _title("BEFORE", step_before, change.before),
        *_rewards(() if change.wins else change.was.rewards, room),
        *_answer(text_before, room),
    ]
    now = [
        _title("NOW", step_now, change.now, wins=change.before is None),
        *_rewards(change.present.rewards, room),
        *(word_diff(text_before, text_now, room) if compares else _answer(text_now, room)),
    ]
    return [*head, EMPTY, *_together([before, now], room, beside)]


def _answer(text: str, room: int) -> list[Line]:
    return wrapped_lines(text, room) or [(("(empty)", ""),)]


def _together(columns: Sequence[Sequence[Line]], room: int, beside: bool = True) -> list[Line]:
    """Return texts side by side, each in `room` cells, or one below the other."""
    if not beside:
        return [line for column in columns for line in (*column, EMPTY)][:-1]

    def padded(cell: Line) -> Line:
        return (*cell, (" " * max(0, room - line_width(cell)), ""), (_GAP, "$faint"))

    rows = zip_longest(*columns, fillvalue=EMPTY)
    return [(*chain.from_iterable(map(padded, cells[:-1])), *cells[-1]) for cells in rows]


def _labelled(label: str, text: str, width: int, size: int = len("reference ")) -> list[Line]:
    """Return a text behind its label, in at most eight lines."""
    tone = "bold" if label == "prompt" else ""
    lines = _hanging(f"{label:<{size}}", text, width, "$muted", tone)
    if len(lines) > _MOST_ROWS:
        lines[_MOST_ROWS - 1 :] = [((" " * size, "$muted"), ("…", tone))]
    return lines


def _title(word: str, step: str, mean: float | None, wins: bool = False) -> Line:
    figures = f"  {'wins ' if wins else ''}{number(mean)}" if mean is not None else ""
    return ((word, "bold $heading"), (f"  {one_line(step, 30)}", "$muted"), (figures, "bold"))


def _rewards(rewards: tuple[float, ...], room: int) -> list[Line]:
    if not rewards:
        return []
    shown = " ".join(number(reward) for reward in rewards[:_MOST_REWARDS])
    more = " …" if len(rewards) > _MOST_REWARDS else ""
    return wrapped_lines(f"rewards {shown}{more}", room, "$muted")


# --- blind pairs -------------------------------------------------------------------------------


def blind_title(pair: Mapping[str, Any], vote: Mapping[str, Any] | None, width: int) -> list[Line]:
    """Return what is compared and, after the vote, what was chosen and the ratings so far.

    Args:
        pair: Data of the command `progress.pair`.
        vote: Data of the command `progress.vote`; None before the vote.
        width: Width in cells.
    """
    now, before = model.step_words(pair["step"]), model.step_words(pair["baseline_step"])
    steps = f"{now} and {before}, in random order"
    if pair["newest_step"] != pair["step"]:
        steps += f"; the newest look is of {model.step_words(pair['newest_step'])}"
    done = pair["ratings"] if vote is None else vote["ratings"]
    head = (f" {steps}, {done} rated", "$muted")
    lines: list[Line] = [(("BLIND PAIR ", "bold $heading"), head)]
    if vote is None:
        return lines
    lines.append((_SIGNS[vote["result"]], (_automatic(vote), "$muted")))
    return [*lines, *wrapped_lines(vote["sentence"], max(10, width))]


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
            which = f"  {vote[side].upper()}, {model.step_words(step)}"
        head: Line = (("ANSWER ", "bold $heading"), (key, "bold $accent"), (which, "bold $heading"))
        sides.append([head, *_answer(pair[side], room)])
    prompt = _labelled("prompt", pair["prompt"], width, len("prompt  "))
    return [*prompt, EMPTY, *_together(sides, room, beside)]


def _automatic(vote: Mapping[str, Any]) -> str:
    words = {1.0: "now", 0.5: "neither", 0.0: "before"}
    return f"   by its reward: {words[vote['automatic']]}" if vote["automatic"] is not None else ""


# --- prompts that were tried ---------------------------------------------------------------------


def compared(state: State, try_id: str, room: int) -> list[Probe]:
    """Return the chosen prompt and those to compare it with, newest first, at most `room`.

    Earlier answers to the same prompt come first, because they show the effect of training.
    """
    tries = state.tries[::-1]
    chosen = next((probe for probe in tries if probe.try_id == try_id), None)
    if chosen is None:
        return []
    others = [probe for probe in tries[tries.index(chosen) + 1 :] if probe.over]
    others.sort(key=lambda probe: probe.prompt != chosen.prompt)
    return [chosen, *others][: max(1, room)]


def columns(width: int) -> int:
    """Return how many answers fit side by side."""
    return max(1, min(MAX_COLUMNS, (width + len(_GAP)) // (NARROWEST + len(_GAP))))


@dataclass(frozen=True, slots=True)
class Try:
    """A prompt that was tried, at the time when it is shown."""

    probe: Probe
    now: float


def _step(row: Try) -> str:
    return UNKNOWN if row.probe.step is None else str(row.probe.step)


def _took(row: Try) -> Cell:
    probe = row.probe
    if not probe.over:
        return elapsed(row.now - probe.at), "bold $engine-syncing"
    if probe.error:
        return "failed" if probe.error != "cancelled" else "cancel.", "$reward-down"
    return duration(probe.seconds), "$muted"


TRIES: Table[Try] = Table(
    (
        Column("time", 8, lambda row: clock(row.probe.at), "$muted"),
        Column("server", 10, lambda row: one_line(row.probe.server, 20)),
        Column("step", 5, _step, right=True),
        Column("took", 6, _took, right=True),
        Column(" prompt", 9, lambda row: f" {one_line(row.probe.prompt, 300)}", most=999),
    ),
)


def waits_for(probe: Probe, state: State, now: float) -> str:
    """Return what a running prompt waits for."""
    group = state.groups.get(probe.group_id)
    server = state.servers.get(probe.server)
    waited = elapsed(now - probe.at)
    where = ""
    if server is not None:
        shown = lost_text(server, now) if server.lost else server.state.replace("_", " ")
        where = f"; the engine is {shown}"
    if group is not None and group.phase == "GENERATING":
        return f"the policy answers, {waited}"
    if group is not None and group.phase in ("SCORING", "SUBMITTING", "AWAITING_RATING"):
        return f"the answer is scored, {waited}"
    return f"waits for an episode, {waited}{where}"


def answers(probes: Sequence[Probe], state: State, now: float, width: int) -> list[Line]:
    """Return the answers side by side, each under its step and time."""
    if not probes:
        return [(("Type a prompt above; its answer appears here.", "$muted"),)]
    room = (width - len(_GAP) * (len(probes) - 1)) // len(probes)
    return _together([_column(probe, state, now, room, probes[0]) for probe in probes], room)


def _column(probe: Probe, state: State, now: float, width: int, chosen: Probe) -> list[Line]:
    def row(text: str, tone: str = "$muted") -> Line:
        return ((fit(text, width).rstrip(), tone),)

    step = "step unknown" if probe.step is None else f"step {probe.step}"
    server = state.servers.get(probe.server)
    if probe.run and server is not None and len(server.runs) > 1:
        step = f"run {probe.run} {step}"  # steps of another run are other weights
    where = f" · {one_line(probe.server, 16)}" if len(state.servers) > 1 else ""
    head = one_line(f"{step} · {clock(probe.at)}{where}", width)
    shown: list[Line] = [((head, "bold $heading"),)]
    if probe.prompt != chosen.prompt:
        shown.append(row(f"prompt: {one_line(probe.prompt, 200)}"))
    if not probe.over:
        waits = f"◔ {waits_for(probe, state, now)}"
        return [*shown, *wrapped_lines(waits, width, "$engine-syncing")]
    if probe.error:
        return [*shown, *wrapped_lines(f"× no answer: {probe.error}", width, "$reward-down")]
    shown += [row(_figures(probe, state)), EMPTY]
    if probe.reasoning:
        shown.append(row(f"▸ reasoning, {plural(len(probe.reasoning.split()), 'word')}"))
    shown += wrapped_lines(probe.text, width)
    shown += wrapped_lines(calls_text(probe.tool_calls), width, "$accent")
    if not (probe.text or probe.tool_calls):
        shown.append((("(an empty answer)", "$muted"),))
    if probe.cut:
        shown.append(row("… cut here: Enter shows its group"))
    return shown


def _figures(probe: Probe, state: State) -> str:
    how = "" if probe.finish_reason == "stop" else one_line(probe.finish_reason, 12)
    facts = [duration(probe.seconds), plural(probe.tokens, "token"), how]
    group = state.groups.get(probe.group_id)
    if group is not None and group.candidates:
        reward = group.candidates[0].auto_reward
        if reward is not None:
            facts.append(f"reward {reward:.2f}")
    return " · ".join(word for word in facts if word)
