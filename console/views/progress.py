"""Lines about the progress of a policy: verdict, parts of the reward, prompts that changed."""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line
from console.models.progress import Outcome, PromptChange, Standing
from console.text.format import UNKNOWN, bar, figure, number
from console.text.lines import Line, fit, flow
from console.text.wrap import wrapped
from core.events import PartFigures
from core.state import Look, Progress, RunningLook

SIGNS: dict[Outcome, tuple[str, str]] = {
    "better": ("▲", "$reward-up"),
    "worse": ("▼", "$reward-down"),
    "unknown": ("·", "$muted"),
}
"""Sign and colour of an outcome."""
_OUTCOMES = {
    "better": ("▲ better", "$reward-up"),
    "worse": ("▼ worse", "$reward-down"),
    "unknown": ("· not known yet", "$muted"),
    "": ("", ""),
}
_NUMBER, _VERDICT = 8, 15
"""Widths of the columns of the parts' table."""
_BAR = 20


def verdict_lines(found: Standing, width: int) -> list[Line]:
    """Return the sentence of the verdict, with its sign and colour."""
    sign, tone = SIGNS[found.outcome]
    shown = f"bold {tone}" if found.outcome != "unknown" else "bold"
    return [
        (((f"{sign} " if at == 0 else "  "), f"bold {tone}"), (text, shown))
        for at, text in enumerate(wrapped(found.sentence, max(10, width - 2)))
    ]


def detail_lines(found: Standing, progress: Progress | None, width: int) -> list[Line]:
    """Return the figures behind the verdict, then the notes."""
    pieces: list[Line] = []
    if found.baseline is not None and found.look is not None:
        verdict = found.look.verdict
        pieces.append(_mean("now", found.look))
        if found.look.mode == "absolute":
            pieces.append(_mean("before", found.baseline))
        if verdict is not None:
            pieces.append(((f"look {verdict.look}", ""),))
            pieces.append(((f"{verdict.samples:,} samples", ""),))
    probe_set = progress.probe_set if progress is not None else None
    if probe_set is not None and not probe_set.error:
        source = one_line(probe_set.source or UNKNOWN, 60)
        pieces.append(
            (("probe set ", "$muted"), (f"{source}, {len(probe_set.prompts)} prompts", ""))
        )
    if found.baseline is not None and (version := (found.look or found.baseline).reward):
        pieces.append((("reward ", "$muted"), (one_line(version, 16), "")))
    indented = [(("  ", ""), *line) for line in flow(pieces, max(10, width - 2))]
    return [*indented, *note_lines(found.notes, width)]


def _mean(word: str, look: Look) -> Line:
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


def running_line(running: RunningLook, now: float, width: int) -> Line:
    """Return the progress of a look as a bar: done, total, time left."""
    total = running.samples
    share = running.done / total if total else None
    pieces = bar(share, max(6, min(_BAR, width - 40)))
    drawn: list[tuple[str, str]] = []
    plain = pieces.plain
    for span in sorted(pieces.spans, key=lambda one: one.start):
        drawn.append((plain[span.start : span.end], str(span.style)))
    passed = now - running.since
    left = ""
    if total and 0 < running.done < total and passed > 0:
        left = f"  about {round(passed / running.done * (total - running.done))} s left"
    word = "baseline" if running.role == "baseline" else "look"
    step = "" if running.step is None else f" at step {running.step}"
    return (
        (f"  {word}{step} ", "$muted"),
        *drawn,
        (f" {running.done}/{total or '?'}", "bold"),
        (" answers" + left, "$muted"),
    )


# --- parts -------------------------------------------------------------------------------------


def parts_head(width: int) -> Line:
    """Return the titles of the columns of the parts."""
    room = _part_room(width)
    text = f" {'part':<{room}}{'before':>{_NUMBER}}{'now':>{_NUMBER}}{'change':>{_NUMBER}}"
    return ((fit(f"{text}  verdict", width), "$muted"),)


def parts_lines(parts: Sequence[PartFigures], width: int) -> list[Line]:
    """Return a row for each part: mean before and now, change, verdict."""
    return [_part(one, width) for one in parts]


def _part(one: PartFigures, width: int) -> Line:
    room = _part_room(width)
    words, tone = _OUTCOMES.get(one.outcome, _OUTCOMES[""])
    change = UNKNOWN if one.before is None else _signed(one.before, one.mean)
    return (
        (f" {fit(one_line(one.part, 60), room)}", ""),
        (f"{figure(one.before):>{_NUMBER}}", "$muted"),
        (f"{figure(one.mean):>{_NUMBER}}", "bold"),
        (f"{change:>{_NUMBER}}", ""),
        (fit(f"  {words}", _VERDICT + 2), tone),
    )


def _part_room(width: int) -> int:
    return max(8, min(30, width - 1 - 3 * _NUMBER - _VERDICT - 2))


def _signed(before: float, now: float) -> str:
    """Return the difference with its sign and as many places as its figures have."""
    places = 3 if max(abs(before), abs(now)) < 10 else 1
    return f"{now - before:+.{places}f}"


# --- prompts -----------------------------------------------------------------------------------


def prompts_head(width: int) -> Line:
    """Return the titles of the columns of the prompts."""
    return ((fit(f" {'change':>7}{'before':>8}{'now':>7}  answer   prompt", width), "$muted"),)


def prompt_line(one: PromptChange, width: int) -> Line:
    """Return `▲ +0.50    0.25   0.75  other    What is the capital of …`."""
    rounded = round(one.change, 2)
    sign, tone = ("▲", "$reward-up") if rounded > 0 else ("▼", "$reward-down")
    if not rounded:
        sign, tone = "·", "$muted"
    return (
        (f" {sign} ", tone),
        (f"{rounded:+.2f}" if rounded else " 0.00", f"bold {tone}"),
        (f"{number(one.before):>8}{one.now:>7.2f}", ""),
        ("  same     " if one.same_text else "  other    ", "$muted"),
        (fit(one_line(one.prompt, 300), max(1, width - 34)), ""),
    )
