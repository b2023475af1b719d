"""Lines of the Log screen: its head, and the line under the cursor in full."""

from ajet_swarm.common.text import plural
from console.screens.log.model import LogBook
from console.session.logs import SOURCES
from console.text.lines import EMPTY, Line
from console.text.sections import HEADING
from console.text.wrap import wrapped

_TONES = {"error": "$engine-lost", "warning": "$engine-booting"}


def head_lines(book: LogBook, source: str, level: str, only: bool, follow: bool) -> list[Line]:
    """Return the sources, and below them what is shown of them."""
    chosen: list[tuple[str, str]] = []
    for name in ("all", *SOURCES):
        chosen += [(f" {name} ", "bold reverse" if name == source else "$muted"), (" ", "")]
    notes = [f"from {level}", "following" if follow else "paused, End follows"]
    if book.needle:
        count = sum(book.needle in line.text.lower() for line in book.lines)
        notes.append(f"“{book.needle}” in {plural(count, 'line')}")
    if only:
        notes.append("only these")
    if count := book.tracebacks:
        verb = "unfolds" if book.folded else "folds"
        notes.append(f"{plural(count, 'traceback')}, t {verb}")
    notes.append(f"{plural(len(book.lines), 'line')} shown")
    below = "     " + " · ".join(notes)
    return [(("LOG", HEADING), ("  ", ""), *chosen), ((below, "$muted"),)]


def whole_lines(book: LogBook, width: int, rows: int) -> list[Line]:
    """Return the line under the cursor in at most `rows` rows; nothing without a cursor."""
    if book.at is None:
        return []
    shown = wrapped(book.text(book.at), width)
    if len(shown) > rows:
        more = sum(len(row) for row in shown[rows - 1 :])
        shown[rows - 1 :] = [f"… {more} more characters; c copies what is on screen"]
    tone = _TONES.get(book.lines[book.at].level, "")
    lines: list[Line] = [((row, tone),) for row in shown]
    return [*lines, *[EMPTY] * (rows - len(lines))]
