"""A job and the operations on it as lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from ajet_swarm.common.text import one_line, plural
from console.text.format import clock, duration, elapsed
from console.text.lines import EMPTY, Line, fit
from console.text.wrap import wrapped
from core.control_payloads import JobInfo
from core.events import OperationStep, WorkChanged

if TYPE_CHECKING:
    from console.models.job_form import Change, Notice

_SIGNS = {
    "waiting": ("·", "$faint"),
    "doing": ("▸", "$primary"),
    "done": ("✓", "$engine-rolling"),
    "skipped": ("–", "$muted"),
    "failed": ("✖", "$engine-lost"),
    "cancelled": ("■", "$warning"),
}
DONE_SECONDS = 120.0
"""Seconds for which a finished operation is shown; a failed one stays."""


def work_lines(work: WorkChanged | None, now: float, width: int) -> list[Content]:
    """Return the operation on an engine, step by step; nothing some time after a success."""
    if work is None or (work.phase == "done" and now - work.at > DONE_SECONDS):
        return []
    sign, color = _SIGNS.get(work.phase, _SIGNS["doing"])
    lasted = (work.at if work.over else now) - work.began
    head = Content.assemble(
        (f"{sign} {one_line(work.work, 40)}  ", f"bold {color}"),
        (elapsed(lasted), "$muted"),
    )
    if work.phase == "done":
        return [Content.assemble(head, (f"  {one_line(work.said, 300)}", "$muted"))]
    shown = [head]
    if work.steps:
        shown += _rows([_step(step, now) for step in work.steps], width - 2)
    if work.said:
        shown.append(Content.styled(f"  {one_line(work.said, 300)}", color))
    return shown


def _step(step: OperationStep, now: float) -> Content:
    mark, tone = _SIGNS.get(step.phase, _SIGNS["waiting"])
    took = ""
    if step.phase == "doing":
        took = f" {elapsed(now - step.began)}"
    elif step.phase == "done" and step.ended - step.began >= 1:
        took = f" {duration(step.ended - step.began)}"
    style = "bold $foreground" if step.phase == "doing" else "$muted"
    return Content.assemble((f"{mark} ", tone), (f"{step.title}{took}", style))


def _rows(pieces: Sequence[Content], width: int) -> list[Content]:
    """Return the pieces in rows, as many in each as fit."""
    rows: list[list[Content]] = [[]]
    for piece in pieces:
        if rows[-1] and sum(row.cell_length + 3 for row in rows[-1]) + piece.cell_length > width:
            rows.append([])
        rows[-1].append(piece)
    return [Content.assemble("  ", Content("   ").join(row)) for row in rows]


def source_lines(sheet: JobInfo, width: int) -> list[Line]:
    """Return where the job on screen and the running one come from."""
    if sheet.saved:
        saved = f"saved {clock(sheet.saved_at)} in {one_line(sheet.path, 300)}"
    elif sheet.last:
        saved = "not saved: a start keeps the server's job, which another client sent"
    else:
        saved = f"not saved: a start uses the {'job last sent' if sheet.sent else 'default job'}"
    return [((" ", ""), (fit(saved, width - 2), "$muted"))]


def diff_lines(changes: "Sequence[Change]", sheet: JobInfo, width: int) -> list[Line]:
    """Return the changes of the job against the one of the server."""
    from console.models.job_form import change_words

    lines: list[Line] = [(("CHANGES", "bold $heading"), ("  against its current job", "$muted"))]
    if not sheet.running:
        lines += [EMPTY, ((fit("The job of the server is not known yet.", width), "$muted"),)]
        return lines
    lines += [((text, "$muted"),) for text in wrapped(sheet.source, width)]
    if sheet.differs:
        note = f"differs from the job last sent from here in {plural(len(sheet.differs), 'value')}"
        lines += [((text, "$warning"),) for text in wrapped(f"{note}: another was sent", width)]
    lines.append(EMPTY)
    if not changes:
        lines.append((("✓ ", "$engine-rolling"), ("no difference", "")))
    room = max(10, min(26, width // 3))
    for change in changes:
        name, before, after = change_words(change)
        rest = max(8, min(32, (width - room - 5) // 2))
        lines.append(
            (
                ("~ ", "$warning"),
                (f"{fit(name, room):<{room}} ", ""),
                (f"{fit(before, rest):>{min(rest, 14)}}", "$muted"),
                (" → ", "$muted"),
                (fit(after, rest), "bold"),
            )
        )
    return lines


def notice_lines(notices: "Sequence[Notice]", width: int) -> list[Line]:
    """Return warnings about a job that can be sent."""
    if not notices:
        return []
    lines: list[Line] = []
    for notice in notices[:12]:
        where = f"line {notice.line}: " if notice.line else ""
        for place, text in enumerate(wrapped(f"{where}{one_line(notice.text, 300)}", width - 2)):
            lines.append((("! " if not place else "  ", "$warning"), (text, "")))
    if len(notices) > 12:
        lines.append(((f"  and {len(notices) - 12} more", "$muted"),))
    return [*lines, EMPTY]


def describe_changes(changes: "Sequence[Change]", width: int = 80) -> str:
    """Return the changes in one paragraph, for a question.

    Args:
        changes: The changes.
        width: Maximum length of one change.
    """
    from console.models.job_form import change_words

    if not changes:
        return "The job equals the one on the server."
    changes_text = [
        f"{name} {before} → {after}"
        for name, before, after in (change_words(change) for change in changes[:5])
    ]
    more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
    return f"Changes: {', '.join(one_line(change, width) for change in changes_text)}{more}."
