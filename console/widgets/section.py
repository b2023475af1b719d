"""A part of a screen that is built from the session and repainted only when it differs."""

from collections.abc import Callable

from textual.content import Content
from textual.widgets import Static

from console.models.app_host import host
from console.session.app_state import Session
from console.text.sections import HEADING, Room
from console.widgets.pane import FramedWidget

TALL = 36
"""Rows of a terminal from which there is room for secondary content."""


Build = Callable[[Session, Room], Content]


class Section(FramedWidget, Static):
    """Shows what `build` returns for the session and the room.

    With a border, the first line is its title; of a single line only the heading.
    """

    DEFAULT_CSS = """
    Section { height: auto; min-height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, build: Build, keys: frozenset[str], *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(markup=False, id=id)
        self._build = build
        self._keys = keys
        self._session: Session | None = None
        self._last: Content | None = None

    def paint(self, session: Session, dirty: frozenset[str]) -> None:
        """Rebuild when one of its keys has changed.

        A key includes its prefixed forms: "server" also means "server:NAME".
        """
        self._session = session
        if "*" in dirty or not self._keys.isdisjoint(key.partition(":")[0] for key in dirty):
            self._show(session)

    def _show(self, session: Session) -> None:
        size = self.content_size
        if not size.width:
            return
        framed = self.framed
        rows = self.app.size.height
        room = Room(size.width, size.height + framed, rows >= TALL, rows)
        content = self._build(session, room)
        if framed:
            title, *rest = content.split("\n", allow_blank=True)
            content = Content("\n").join(rest)
            if not rest:
                title, content = _divided(title)
            self.put_in_border(title)
        last = self._last
        if last is not None and content.plain == last.plain and content.spans == last.spans:
            return
        grown = last is None or last.plain.count("\n") != content.plain.count("\n")
        self._last = content
        self.update(content, layout=grown)

    def repaint(self) -> None:
        """Rebuild after a change of the widget's own state."""
        session = self._session
        if session is not None:
            host(self).guarded(lambda: self._show(session))

    def on_resize(self) -> None:
        """Rebuild for another size."""
        self.repaint()


def _divided(line: Content) -> tuple[Content, Content]:
    """Split a line into its heading and the rest; the heading may be empty."""
    styled = [span.end for span in line.spans if span.start == 0 and span.style == HEADING]
    at = max(styled, default=0)
    rest = line[at:]
    return line[:at], rest[len(rest.plain) - len(rest.plain.lstrip()) :]
