"""The verdict in one line, for the overview."""

import re

from rich.cells import cell_len
from textual.content import Content

from console.screens.progress.model import Standing, progress_server, standing
from console.screens.progress.text import SIGNS, running_time
from console.session.app_state import Session
from console.text.lines import fit
from console.text.sections import Room, heading

_INTERVAL = re.compile(r" \([^)]*\)")


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
