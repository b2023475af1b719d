"""Drawing of log lines: time, source, level, text, with search matches marked."""

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ajet_swarm.common.text import plural
from console.models.log_fold import Folds
from console.session.logs import LogLine
from console.text.format import clock

SIGNS = {"error": "✖", "warning": "!", "info": " ", "debug": "·"}


class LogLines(ScrollView):
    """Draws the visible lines; a subclass provides them."""

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
    LogLines { background: $background; }
    LogLines > .log--time { color: $muted; }
    LogLines > .log--source { color: $heading; }
    LogLines > .log--error { color: $engine-lost; }
    LogLines > .log--warning { color: $engine-booting; }
    LogLines > .log--debug { color: $muted; }
    LogLines > .log--at { background: $panel; }
    LogLines > .log--match { color: $pill-text; background: $winner; }
    """
    at: reactive[int | None] = reactive(None)
    """Index of the line under the cursor; None for none."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[LogLine] = []
        self.folds = Folds()
        self._texts: list[str] = []
        """Drawn text of each line."""
        self._query = ""

    def render_line(self, y: int) -> Strip:
        """Render one visible line."""
        scroll_x, scroll_y = self.scroll_offset
        width = self.size.width
        row = scroll_y + y
        if row >= len(self.folds.rows):
            return Strip.blank(width, self.rich_style)
        at = self.folds.rows[row]
        strip = self._strip(at)
        return strip.crop_extend(scroll_x, scroll_x + width, self._base(at))

    def _base(self, at: int) -> Style:
        if at != self.at:
            return self.rich_style
        return self.rich_style + self.get_component_rich_style("log--at", partial=True)

    def _strip(self, at: int) -> Strip:
        line, text = self.shown[at], self._displayed_text(at)
        base = self._base(at)
        time = base + self.get_component_rich_style("log--time", partial=True)
        source = base + self.get_component_rich_style("log--source", partial=True)
        tone = base
        if line.level in ("error", "warning", "debug"):
            tone = base + self.get_component_rich_style(f"log--{line.level}", partial=True)
        segments = [
            Segment(f"{clock(line.at)} ", time),
            Segment(f"{line.source[:7]:<7} ", source),
            Segment(f"{SIGNS.get(line.level, ' ')} ", tone),
            *self._text(text, tone),
        ]
        return Strip(segments)

    def _displayed_text(self, at: int) -> str:
        """Return the text of a row; of a folded traceback its last line."""
        block = self.folds.block(at)
        if block is None or block.head != at:
            return self._texts[at]
        if not block.folded:
            return f"▾ {self._texts[at]}"
        raised = next((line for line in reversed(block.lines) if self._texts[line].strip()), at)
        return f"▸ {self._texts[raised]}  · {plural(len(block.lines), 'line')}"

    def _text(self, text: str, tone: Style) -> Iterable[Segment]:
        if not self._query:
            yield Segment(text, tone)
            return
        style = tone + self.get_component_rich_style("log--match", partial=True)
        low, at = text.lower(), 0
        while (start := low.find(self._query, at)) >= 0 and len(low) == len(text):
            yield Segment(text[at:start], tone)
            at = start + len(self._query)
            yield Segment(text[start:at], style)
        yield Segment(text[at:], tone)
