"""Lines about the verdict on a policy, its figures and the running look."""

import re
from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.models.progress.pair_ratings import bias_sentence, ratings_sentence
from console.models.progress.standing import Standing, progress_server, restores, standing
from console.session.app_state import Session
from console.text.format import UNKNOWN, bar, duration, elapsed, number
from console.text.lines import Line, fit, flow
from console.text.sections import Room, heading
from console.text.server_color import server_color
from console.text.wrap import wrapped
from core.events import LookEnded
from core.state import Progress, RunningLook
from core.verdict.conclusion import Outcome

SIGNS: dict[Outcome, tuple[str, str]] = {
    "better": ("▲", "$reward-up"),
    "worse": ("▼", "$reward-down"),
    "unknown": ("·", "$muted"),
}
"""Sign and colour of an outcome."""
_INTERVAL = re.compile(r" \([^)]*\)")
_BAR = 20
_MINUTES = 120
"""Seconds from which the time left is shown in minutes."""


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
    if present.baseline is not None and present.look is not None:
        verdict = present.look.verdict
        pieces.append(_mean("now", present.look))
        if present.look.mode == "absolute":
            pieces.append(_mean("before", present.baseline))
        if verdict is not None:
            pieces.append(((f"{verdict.samples:,} samples", ""),))
            pieces.append((("look ", "$muted"), (f"{verdict.look}", "")))
        if progress is not None and (best := progress.best) is not None:
            step = "?" if best.step is None else f"step {best.step}"
            pieces.append((("best verified ", "$muted"), (step, "")))
    probe_set = progress.probe_set if progress is not None else None
    if probe_set is not None and not probe_set.error:
        source = one_line(probe_set.source or UNKNOWN, 60)
        count = f", {len(probe_set.prompts)} prompts" if present.look is None else ""
        pieces.append((("probe set ", "$muted"), (f"{source}{count}", "")))
    if present.baseline is not None and (version := (present.look or present.baseline).reward):
        pieces.append((("reward ", "$muted"), (one_line(version, 16), "")))
    if (shown := present.look or present.baseline) is not None and shown.left_out:
        names = ", ".join(name.partition(":")[0] for name in shown.left_out)
        pieces.append((("scored without ", "$muted"), (one_line(names, 80), "")))
    indented = [(("  ", ""), *line) for line in flow(pieces, max(10, width - 2))]
    sentences = (ratings_sentence(progress), bias_sentence(progress))
    rated = [text for text in sentences if text]
    human: list[Line] = [
        (("  ", ""), (row, "")) for text in rated for row in wrapped(text, max(10, width - 2))
    ]
    return [*indented, *human, *note_lines(present.notes, width)]


def _mean(word: str, look: LookEnded) -> Line:
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


def overview_line(session: Session, room: Room) -> Content:
    """Return the sentence about the first measured server in one line, and the key of the screen.

    The first look, about which the sentence is, has its time. Where there is room, a note or the
    running look follows.
    """
    present = standing(session.state, progress_server(session.state))
    sign, tone = SIGNS[present.tone]
    title, key = heading("PROGRESS"), ("  8 ", "bold $accent")
    width = max(10, room.width - title.cell_length - 8)
    sentence = present.sentence
    known = session.state.progress.get(progress_server(session.state))
    first = known.running if known is not None and known.baseline is None else None
    if first is not None and (time := running_time(first, session.as_of)):
        sentence = f"{sentence}, {time}"
    more = next(iter([*present.notes, present.running]), "")
    if more and cell_len(f"{sentence}. {more}") <= width:
        sentence = f"{sentence}. {more}"
    elif present.look is not None and (_note_is_missing(present) or cell_len(sentence) > width):
        sentence = _shortened(present)
    shown = fit(sentence, min(width, cell_len(sentence)))
    words = (shown, f"bold {tone}" if present.tone != "unknown" else "")
    return heading("PROGRESS", Content.assemble((f"{sign} ", f"bold {tone}"), words, key))


def _shortened(present: Standing) -> str:
    """Return the sentence without what a narrow line leaves out; a policy below its best step is
    still said to be: `Better by 0.11 (0.07 to 0.15) than at step 1, 0.07 below step 86`."""
    if present.worse_parts:
        return f"{present.sentence.partition(' (')[0]}; worse: {present.worse_parts}"
    sentence = present.sentence.partition("; than ")[0]
    below = present.below_best
    if below is None or not _note_is_missing(present):
        return sentence if present.outcome == "unknown" else _INTERVAL.sub("", sentence)
    sentence = sentence.partition(", on ")[0]
    best = "its best step" if below.step is None else f"step {below.step}"
    return f"{sentence}, {-below.effect:.2f} below {best}"


def _note_is_missing(present: Standing) -> bool:
    """Return whether the sentence without a note does not say that the policy is below its best."""
    return present.below_best is not None and present.outcome != "unknown"


def has_progress(session: Session) -> bool:
    """Return whether there is anything to say about the progress of a server."""
    progress = session.state.progress.get(progress_server(session.state))
    return progress is not None and (progress.probe_set is not None or bool(progress.looks))


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
        rows.append(
            (
                ("  ", ""),
                (context.keys["progress.rewind"], "bold $accent"),
                (f" restores {step}", ""),
            )
        )
    rows += detail_lines(present, progress, width)
    if name:
        color = server_color(session.state, name)
        rows.insert(0, (("server ", "$muted"), (one_line(name, 40), f"bold {color}")))
    return rows


def running_line(running: RunningLook, now: float, width: int) -> Line:
    """Return the progress of a look as a bar: done, total, time left or time so far."""
    total = running.samples
    share = running.done / total if total else None
    pieces = bar(share, max(6, min(_BAR, width - 40)))
    drawn: list[tuple[str, str]] = []
    plain = pieces.plain
    for span in sorted(pieces.spans, key=lambda span: span.start):
        drawn.append((plain[span.start : span.end], str(span.style)))
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
