"""The log, drawn line by line: only what is visible costs anything."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.logs import LEVELS, LogLine
from console.widgets.words import clock
from console.wrap import safe

LINE_CAP = 2_000
"""Characters of one line that are shown."""
KEPT = 20_000
"""Lines kept for scrolling back."""
_HEAD = 18
_SIGNS = {"error": "✖", "warning": "!", "info": " ", "debug": "·"}


def matches(line: LogLine, level: str, query: str) -> bool:
    """Whether a line is of that level or above and holds the query."""
    if LEVELS.index(line.level) < LEVELS.index(level):
        return False
    return not query or query in line.text.lower()


class LogView(ScrollView, can_focus=True):
    """Lines with time, source and level; sticks to the end while `follow` is on."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log--time",
        "log--source",
        "log--error",
        "log--warning",
        "log--debug",
        "log--match",
        "log--at",
    }
    DEFAULT_CSS = """
    LogView { background: $background; }
    LogView > .log--time { color: $muted; }
    LogView > .log--source { color: $heading; }
    LogView > .log--error { color: $engine-lost; }
    LogView > .log--warning { color: $engine-booting; }
    LogView > .log--debug { color: $muted; }
    LogView > .log--at { background: $panel; }
    LogView > .log--match { color: $pill-text; background: $winner; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("end", "follow", "Follow", id="log.follow", tooltip="Stay at the newest line"),
        Binding("home", "scroll_home", "First line", show=False),
    ]

    follow = reactive(True)
    """Whether new lines stay in sight."""

    def __init__(self) -> None:
        super().__init__()
        self.at: int | None = None
        """Place of the match the operator is at."""
        self.shown: list[LogLine] = []
        self._texts: list[str] = []
        self._query = ""
        self._widest = 0

    def replace(self, found: Iterable[LogLine], query: str) -> None:
        """Show these lines and no others."""
        self.shown, self._texts, self._widest = [], [], 0
        self._query = query.lower()
        self.at = None
        self.extend(found)
        self.refresh()

    def extend(self, found: Iterable[LogLine]) -> None:
        """Add lines at the end."""
        for line in found:
            text = safe(line.text[:LINE_CAP]).replace("\t", "    ").replace("\n", "␊")
            self.shown.append(line)
            self._texts.append(text)
            self._widest = max(self._widest, cell_len(text))
        if len(self.shown) > KEPT:
            extra = len(self.shown) - KEPT
            del self.shown[:extra], self._texts[:extra]
            self.at = None if self.at is None or self.at < extra else self.at - extra
            if not self.follow:
                self.scroll_to(y=max(0, self.scroll_offset.y - extra), animate=False)
        self.virtual_size = Size(self._widest + _HEAD, len(self.shown))
        if self.follow:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        self.refresh()

    def on_resize(self) -> None:
        """The end may have moved out of sight."""
        if self.follow:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Scrolling up lets go of the end; reaching it takes hold again."""
        super().watch_scroll_y(old, new)
        self.follow = new >= self.max_scroll_y

    def action_follow(self) -> None:
        """Go to the end and stay there."""
        self.follow = True
        self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)

    def visible_texts(self) -> Sequence[str]:
        """The lines on screen as they came."""
        top = self.scroll_offset.y
        return [line.text for line in self.shown[top : top + self.size.height]]

    def jump(self, query: str, forward: bool) -> bool:
        """Go to the next or previous line that holds `query`; False when there is none.

        The first jump looks back from the end.
        """
        count, wanted = len(self.shown), query.lower()
        start = count if self.at is None else self.at
        order = range(start + 1, count) if forward else range(start - 1, -1, -1)
        for at in order:
            if wanted in self.shown[at].text.lower():
                self.at = at
                top, height = self.scroll_offset.y, self.size.height
                if not top <= at < top + height:
                    self.follow = False
                    self.scroll_to(y=max(0, at - height // 2), animate=False, immediate=True)
                self.refresh()
                return True
        return False

    def mark(self, query: str) -> None:
        """Show where `query` stands."""
        self._query = query.lower()
        self.at = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        scroll_x, scroll_y = self.scroll_offset
        width = self.size.width
        at = scroll_y + y
        if at >= len(self.shown):
            return Strip.blank(width, self.rich_style)
        strip = self._strip(at)
        return strip.crop_extend(scroll_x, scroll_x + width, self._base(at))

    def _base(self, at: int) -> Style:
        if at != self.at:
            return self.rich_style
        return self.rich_style + self.get_component_rich_style("log--at", partial=True)

    def _strip(self, at: int) -> Strip:
        line, text = self.shown[at], self._texts[at]
        base = self._base(at)
        time = base + self.get_component_rich_style("log--time", partial=True)
        source = base + self.get_component_rich_style("log--source", partial=True)
        tone = base
        if line.level in ("error", "warning", "debug"):
            tone = base + self.get_component_rich_style(f"log--{line.level}", partial=True)
        segments = [
            Segment(f"{clock(line.at)} ", time),
            Segment(f"{line.source[:7]:<7} ", source),
            Segment(f"{_SIGNS.get(line.level, ' ')} ", tone),
            *self._text(text, tone),
        ]
        return Strip(segments)

    def _text(self, text: str, tone: Style) -> Iterable[Segment]:
        if not self._query:
            yield Segment(text, tone)
            return
        found = tone + self.get_component_rich_style("log--match", partial=True)
        low, at = text.lower(), 0
        while (start := low.find(self._query, at)) >= 0 and len(low) == len(text):
            yield Segment(text[at:start], tone)
            at = start + len(self._query)
            yield Segment(text[start:at], found)
        yield Segment(text[at:], tone)
