"""Panes of styled lines; only visible lines are painted."""

from collections.abc import Callable, Hashable, Sequence
from typing import Self

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from console.text.lines import Line, line_text

Builder = Callable[[int], Sequence[Line]]
"""Builds the lines for a width in cells."""
HeadBuilder = Callable[[int], Line]
REVERSED = "reverse"
"""Background style in which all text has one colour."""


class FramedWidget(Widget):
    """Measures its size in every layout that it requests.

    Textual caches the box of a layout that runs while the widget is still changing. A layout
    requested meanwhile would reuse that box, and the widget would keep a wrong height.
    """

    _in_border: Content | None = None

    @property
    def framed(self) -> bool:
        """Whether it has a border whose upper edge has room for a title."""
        return bool(self.styles.border_top[0])

    def put_in_border(self, title: Content) -> None:
        """Show `title` in the border, unless it is there already."""
        before = self._in_border
        if before is None or before.plain != title.plain or before.spans != title.spans:
            self._in_border = title
            self.border_title = title

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Refresh; a layout that was requested before is discarded."""
        if layout:
            self._layout_required = False
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)


class TextPane(FramedWidget, ScrollView, can_focus=False):
    """Shows lines; scrolls up and down when there are more than fit.

    Lines are rebuilt only when their source or the width has changed.
    """

    DEFAULT_CSS = """
    TextPane { height: auto; overflow-x: hidden; overflow-y: auto; }
    """
    ALLOW_SELECT = True

    def __init__(
        self,
        id: str | None = None,  # noqa: A002 - Textual's own name
        classes: str | None = None,
        *,
        fill: bool = False,
    ) -> None:
        """Create an empty pane.

        Args:
            id: See `Widget`.
            classes: See `Widget`.
            fill: Whether the lines depend on the height too; the pane must not have height `auto`.
        """
        super().__init__(id=id, classes=classes)
        self._fill = fill
        self._source: Hashable = None
        self._build: Builder = lambda width: ()
        self._lines: Sequence[Line] = ()
        self._head_source: Hashable = None
        self._head: HeadBuilder | None = None
        self._width = 0
        self._height = 0
        """Rows of the pane when its lines were built."""
        self._tones: dict[tuple[str, str], RichStyle] = {}
        self._painted: dict[int, tuple[Line, str]] = {}
        """Line and background style of each row on screen."""

    @property
    def lines(self) -> Sequence[Line]:
        """The lines below the head."""
        return self._lines

    @property
    def text(self) -> str:
        """The text, head included, without styles."""
        rows = [self._head(self._width), *self._lines] if self._head else self._lines
        return "\n".join(line_text(row) for row in rows)

    def show(self, source: Hashable, build: Builder) -> None:
        """Paint the lines that `build` returns, unless `source` is unchanged."""
        if source == self._source and self._width and self._fits:
            return
        self._source = source
        self._build = build
        self._rebuild()

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Paint `lines` as they are."""
        fixed = tuple(lines)
        self.show(fixed, lambda width: fixed)

    def show_head(self, source: Hashable, build: HeadBuilder) -> None:
        """Paint one line above the others; it does not scroll."""
        if source == self._head_source and self._head is not None:
            return
        self._head_source = source
        had, self._head = self._head is not None, build
        if not had:
            self._measure()
        self.repaint()

    def show_title(self, line: Line) -> None:
        """Show a title in the border if there is one, else in a line above the text."""
        if self.framed:
            self.drop_head()
            self.put_in_border(Content.assemble(*line))
        else:
            self.show_head(line, lambda width: line)

    def drop_head(self) -> None:
        """Paint no line above the others."""
        if self._head is not None:
            self._head, self._head_source = None, None
            self._measure()
            self.refresh()

    def content_rows(self) -> int:
        """Rows needed to show everything."""
        return len(self._lines) + (self._head is not None)

    @property
    def _fits(self) -> bool:
        """Whether the lines were built for the current size; the scroll bar changes the width."""
        same_width = self._width == self.scrollable_content_region.width
        return same_width and not (self._fill and self._height != self.size.height)

    def _rebuild(self) -> None:
        self._width = self.scrollable_content_region.width
        self._height = self.size.height
        if self._width <= 0:
            self._lines = ()  # hidden: the first frame after it is shown must not have old lines
            return
        before = len(self._lines)
        self._lines = self._build(self._width)
        if len(self._lines) != before:
            self._measure()
        self.repaint()

    def repaint(self) -> None:
        """Paint the visible rows that have changed."""
        width, height = self.size
        for y in range(height):
            if self._painted.get(y) != self.row(y):
                self.refresh(Region(0, y, width, 1))

    def _measure(self) -> None:
        size = Size(max(1, self._width), self.content_rows())
        if self.styles.is_auto_height:
            self.virtual_size = size
            self.refresh(layout=True)
        else:
            self.set_extent(size)

    def set_extent(self, size: Size) -> None:
        """Set the size of the content; lay the screen out again only if needed.

        Setting `virtual_size` always does so, which repaints every widget.
        """
        height = self.size.height
        if not height or (size.height > height) != (self.virtual_size.height > height):
            self.virtual_size = size
            return
        self.set_reactive(TextPane.virtual_size, size)
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.window_virtual_size = size.height
        if self.scroll_offset.y > self.max_scroll_y:
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the rows for a height of `auto`."""
        if width > 0 and width != self._width:
            self._width = width
            self._lines = self._build(width)
            self.virtual_size = Size(width, self.content_rows())
        return self.content_rows()

    def on_resize(self) -> None:
        """Build the lines for another size."""
        if not self._fits:
            self._rebuild()
        needed = self.virtual_size.height > self.size.height
        if self.styles.overflow_y == "auto" and self.show_vertical_scrollbar > needed:
            self.show_vertical_scrollbar = False  # it appeared during the layout
            self.call_after_refresh(self._rebuild)

    def notify_style_update(self) -> None:
        """Drop cached styles after a change of theme or class."""
        super().notify_style_update()
        self._tones.clear()

    def tone_style(self, tone: str, extra: str = "") -> RichStyle:
        """Return the style of a tone over this widget's own; `extra` is applied to both."""
        key = (tone, extra)
        style = self._tones.get(key)
        if style is None:
            variables = self.app.theme_variables
            full = self.visual_style
            if extra:
                full = full + Style.parse(extra, variables)
            if tone and not extra.startswith(REVERSED):  # colours would be patches of background
                full = full + Style.parse(tone, variables)
            style = self._tones[key] = full.rich_style
        return style

    def paint(self, line: Line, width: int, extra: str = "") -> Strip:
        """Render one line in exactly `width` cells."""
        segments = [Segment(text, self.tone_style(tone, extra)) for text, tone in line if text]
        return Strip(segments).adjust_cell_length(width, self.tone_style("", extra))

    def row(self, y: int) -> tuple[Line, str]:
        """Return the line at row `y` of the visible part, and its background style."""
        if self._head is not None and y == 0:
            return self._head(self.scrollable_content_region.width), self.head_tone
        at = y + self.scroll_offset.y - (self._head is not None)
        return (self._lines[at], "") if 0 <= at < len(self._lines) else ((), "")

    def render_line(self, y: int) -> Strip:
        """Paint row `y` of what is visible."""
        width = self.scrollable_content_region.width
        line, extra = self._painted[y] = self.row(y)
        if not line:
            return Strip.blank(width, self.tone_style(""))
        if not self.ALLOW_SELECT or (self._head is not None and y == 0):
            return self.paint(line, width, extra)
        at = y + self.scroll_offset.y - (self._head is not None)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(at)) is not None:
            line = _selected(line, *span)
        return self.paint(line, width, extra).apply_offsets(0, at)

    @property
    def head_tone(self) -> str:
        """Background style of the head."""
        return cursor_tone(self) if self.has_class("-selected") else "on $panel"

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text selected with the mouse."""
        text = "\n".join(line_text(line) for line in self._lines)
        return selection.extract(text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the selection."""
        self.refresh()


def cursor_tone(widget: Widget) -> str:
    """Return the style of the row under the cursor; the theme of ANSI colours has no band."""
    return REVERSED if widget.app.current_theme.ansi else "on $band"


def _selected(line: Line, start: int, end: int) -> Line:
    """Return `line` with the characters from `start` to `end` (-1: to its end) reversed."""
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
    """Return `text` in the middle of `width` cells."""
    return ((" " * max(0, (width - cell_len(text)) // 2) + text, tone),)
