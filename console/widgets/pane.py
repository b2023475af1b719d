"""Lines of toned text, painted one by one: only what is visible costs."""

from collections.abc import Callable, Hashable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style

from console.views import Line

Builder = Callable[[int], Sequence[Line]]
"""Makes the lines for a width in cells."""
HeadBuilder = Callable[[int], Line]


class Pane(ScrollView, can_focus=False):
    """Shows lines; scrolls up and down when there are more than fit.

    Lines are made again only when what they are made from, or the width, has changed.
    """

    DEFAULT_CSS = """
    Pane { height: auto; overflow-x: hidden; overflow-y: auto; }
    """
    ALLOW_SELECT = True

    def __init__(self, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, classes=classes)
        self._made_from: Hashable = None
        self._build: Builder = lambda width: ()
        self._lines: Sequence[Line] = ()
        self._head_from: Hashable = None
        self._head: HeadBuilder | None = None
        self._width = 0
        self._tones: dict[tuple[str, str], RichStyle] = {}

    @property
    def lines(self) -> Sequence[Line]:
        """What is painted below the head."""
        return self._lines

    @property
    def text(self) -> str:
        """What is painted, head included, as plain text."""
        rows = [self._head(self._width), *self._lines] if self._head else self._lines
        return "\n".join("".join(piece for piece, _ in row) for row in rows)

    def show(self, made_from: Hashable, build: Builder) -> None:
        """Paint what `build` makes from `made_from`, unless that is on screen already."""
        if made_from == self._made_from and self._width:
            return
        self._made_from = made_from
        self._build = build
        self._rebuild()

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Paint `lines` as they are."""
        kept = tuple(lines)
        self.show(kept, lambda width: kept)

    def show_head(self, made_from: Hashable, build: HeadBuilder) -> None:
        """Paint one line above the others; it does not scroll."""
        if made_from == self._head_from and self._head is not None:
            return
        self._head_from = made_from
        had, self._head = self._head is not None, build
        if not had:
            self._measure()
        self.refresh()

    def wanted_height(self) -> int:
        """Rows that would show everything."""
        return len(self._lines) + (self._head is not None)

    def _rebuild(self) -> None:
        self._width = self.scrollable_content_region.width
        if self._width <= 0:
            return
        before = len(self._lines)
        self._lines = self._build(self._width)
        if len(self._lines) != before:
            self._measure()
        self.refresh()

    def _measure(self) -> None:
        self.virtual_size = Size(max(1, self._width), self.wanted_height())
        if self.styles.is_auto_height:
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Rows it takes when its height is `auto`."""
        if width > 0 and width != self._width:
            self._width = width
            self._lines = self._build(width)
            self.virtual_size = Size(width, self.wanted_height())
        return self.wanted_height()

    def on_resize(self) -> None:
        """Another width: other lines."""
        if self.scrollable_content_region.width != self._width:
            self._rebuild()

    def notify_style_update(self) -> None:
        """Another theme or class: other colours."""
        super().notify_style_update()
        self._tones.clear()

    def tone_style(self, tone: str, extra: str = "") -> RichStyle:
        """The style of a tone over this widget's own; `extra` is laid over both."""
        key = (tone, extra)
        style = self._tones.get(key)
        if style is None:
            variables = self.app.theme_variables
            full = self.visual_style
            if extra:
                full = full + Style.parse(extra, variables)
            if tone:
                full = full + Style.parse(tone, variables)
            style = self._tones[key] = full.rich_style
        return style

    def paint(self, line: Line, width: int, extra: str = "") -> Strip:
        """One line in exactly `width` cells."""
        segments = [Segment(text, self.tone_style(tone, extra)) for text, tone in line if text]
        return Strip(segments).adjust_cell_length(width, self.tone_style("", extra))

    def render_line(self, y: int) -> Strip:
        """Paint row `y` of what is visible."""
        width = self.scrollable_content_region.width
        if self._head is not None and y == 0:
            return self.paint(self._head(width), width, self.head_tone)
        row = y + self.scroll_offset.y - (self._head is not None)
        if not 0 <= row < len(self._lines):
            return Strip.blank(width, self.tone_style(""))
        line = self._lines[row]
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(row)) is not None:
            line = _selected(line, *span)
        return self.paint(line, width).apply_offsets(0, row)

    @property
    def head_tone(self) -> str:
        """What lies under the head."""
        return "on $band" if self.has_class("-selected") else "on $panel"

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text the mouse has marked."""
        text = "\n".join("".join(piece for piece, _ in line) for line in self._lines)
        return selection.extract(text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the mark."""
        self.refresh()


def _selected(line: Line, start: int, end: int) -> Line:
    """`line` with the characters from `start` to `end` (-1: to its end) reversed."""
    pieces: list[tuple[str, str]] = []
    at = 0
    for text, tone in line:
        stop = len(text) if end == -1 else max(0, min(len(text), end - at))
        begin = max(0, min(stop, start - at))
        pieces += [
            (text[:begin], tone),
            (text[begin:stop], f"{tone} reverse".strip()),
            (text[stop:], tone),
        ]
        at += len(text)
    return tuple(piece for piece in pieces if piece[0])


def centred(text: str, width: int, tone: str = "$muted") -> Line:
    """`text` in the middle of `width` cells."""
    return ((" " * max(0, (width - cell_len(text)) // 2) + text, tone),)
