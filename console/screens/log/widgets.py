"""The log on screen; only visible lines are drawn."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.screens.log.model import Fold, LogBook
from console.session.logs import LogLine
from console.text.format import clock
from console.ui.keys import keys

_SIGNS = {"error": "✖", "warning": "!", "info": " ", "debug": "·"}
_HEAD = 18
_FOLD = 16
"""Cells before the text, and the extra cells of a fold."""


class LogView(ScrollView, can_focus=True):
    """Shows lines with time, source and level; stays at the end while `follow` is on."""

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
        *keys(
            ("end", "follow", "Follow", "log.follow", "Stay at the newest line"),
            ("home", "scroll_home", "First line"),
            ("up", "step(-1)", "Line", "log.up", "The line above, in full below"),
        ),
        *keys(
            ("down", "step(1)", "Next line", "log.down"),
            ("t", "fold_all", "Fold", "log.fold", "All tracebacks and state changes"),
            ("enter", "fold_one", "Unfold", "log.fold_one", "At the cursor, else the newest"),
            shown=False,
        ),
    ]

    class Changed(Message):
        """The cursor has moved, or the list has left or reached its end."""

    def __init__(self) -> None:
        super().__init__()
        self.book = LogBook()
        self.follow = True
        """Whether new lines stay in sight."""
        self._widest = 0

    def replace(self, lines: Iterable[LogLine]) -> None:
        """Show these lines and no others."""
        at = None if self.book.at is None else self.book.lines[self.book.at]
        self.book.replace(())
        self._widest = 0
        self.extend(lines)
        self.book.at = self.book.lines.index(at) if at in self.book.lines else None

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Add lines at the end."""
        for line in lines:
            self.book.add(line)
            self._widest = max(self._widest, cell_len(self.book.text(len(self.book.lines) - 1)))
        dropped = self.book.drop_oldest()
        if dropped and not self.follow:
            self.scroll_to(y=max(0, self.scroll_offset.y - dropped), animate=False)
        self._measure()

    def _measure(self) -> None:
        self.virtual_size = Size(self._widest + _HEAD + _FOLD, len(self.book.rows))
        if self.follow:
            self._go_to_end()
        self.refresh()

    def _go_to_end(self) -> None:
        self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)

    def _set_follow(self, follow: bool) -> None:
        if follow != self.follow:
            self.follow = follow
            self.post_message(self.Changed())

    def set_cursor(self, at: int | None) -> None:
        """Move the cursor to a line, or remove it."""
        self.book.at = at
        self.refresh()
        self.post_message(self.Changed())

    # --- painting ----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Render one visible line."""
        scroll_x, scroll_y = self.scroll_offset
        width, row = self.size.width, scroll_y + y
        if row >= len(self.book.rows):
            return Strip.blank(width, self.rich_style)
        place = self.book.rows[row]
        base = self._style("at", self.rich_style) if place == self.book.at else self.rich_style
        strip = Strip(self._segments(place, base))
        return strip.crop_extend(scroll_x, scroll_x + width, base)

    def _style(self, name: str, base: Style) -> Style:
        return base + self.get_component_rich_style(f"log--{name}", partial=True)

    def _segments(self, place: int, base: Style) -> Iterable[Segment]:
        line, text, needle = self.book.lines[place], self.book.text(place), self.book.needle
        tone = base if line.level == "info" else self._style(line.level, base)
        yield Segment(f"{clock(line.at)} ", self._style("time", base))
        yield Segment(f"{line.source[:7]:<7} ", self._style("source", base))
        yield Segment(f"{_SIGNS.get(line.level, ' ')} ", tone)
        low, at = text.lower(), 0
        while needle and (start := low.find(needle, at)) >= 0 and len(low) == len(text):
            yield Segment(text[at:start], tone)
            at = start + len(needle)
            yield Segment(text[start:at], self._style("match", tone))
        yield Segment(text[at:], tone)

    # --- moving ------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Keep the end, or the line under the cursor, in sight."""
        if self.follow:
            self._go_to_end()
        if self.book.at is not None:
            self._reveal(self.book.at)

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Stop following when scrolled up; follow again at the end."""
        super().watch_scroll_y(old, new)
        self._set_follow(new >= self.max_scroll_y)

    def rows_in_sight(self) -> Sequence[int]:
        """Return the indices of the lines on screen."""
        top = self.scroll_offset.y
        return self.book.rows[top : top + self.size.height]

    def _reveal(self, place: int, middle: bool = False) -> None:
        """Scroll to a line that is out of sight: no further than needed, or to the middle."""
        row, top, height = self.book.row_of(place), self.scroll_offset.y, self.size.height
        if not top <= row < top + height:
            to = row - height // 2 if middle else row if row < top else row - height + 1
            self._set_follow(self.follow and not middle)
            self.scroll_to(y=max(0, to), animate=False, immediate=True)

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self.follow = True
        self.set_cursor(None)
        self._go_to_end()

    def action_step(self, by: int) -> None:
        """Move the cursor by a line; an invisible cursor moves to the nearer edge first."""
        seen, at = self.rows_in_sight(), self.book.at
        if not seen:
            return
        if at is None or at not in seen:
            self.set_cursor(seen[-1] if by < 0 or at is None else seen[0])
            return
        row = self.book.row_of(at) + by
        if row >= len(self.book.rows):
            self.action_follow()
        else:
            self.set_cursor(self.book.rows[max(0, row)])
            self._reveal(self.book.rows[max(0, row)])

    def search(self, forward: bool) -> bool:
        """Go to the next match; return False when there is none."""
        found = self.book.find(forward)
        if found and self.book.at is not None:
            self._measure()
            self._reveal(self.book.at, middle=True)
        self.post_message(self.Changed())
        return found

    # --- folding -----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        if action == "follow":
            return not self.follow or self.book.at is not None
        return bool(self.book.folds) if action in ("fold_all", "fold_one") else True

    def action_fold_all(self) -> None:
        """Fold or unfold everything."""
        seen = self.rows_in_sight()
        keep = None if self.follow or not seen else seen[len(seen) // 2]
        self.book.fold_all(not self.book.folded)
        self._show_folded(keep)

    def action_fold_one(self) -> None:
        """Fold or unfold the lines under the cursor, else the newest visible one."""
        at = self.book.at
        places = [*self.rows_in_sight(), *([] if at is None else [at])]
        found = (self.book.fold_of(place) for place in reversed(places))
        fold = next((known for known in found if known is not None), None)
        if fold is not None:
            self._toggle(fold)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the click; fold or unfold there."""
        row = event.y + self.scroll_offset.y
        if row < len(self.book.rows):
            place = self.book.rows[row]
            self.set_cursor(place)
            fold = self.book.fold_of(place)
            if fold is not None and place == fold.head:
                self._toggle(fold)

    def _toggle(self, fold: Fold) -> None:
        self.book.fold(fold, not fold.folded)
        fits = len(fold.lines) < self.size.height
        self._show_folded(None if self.follow and (fits or fold.folded) else fold.head)
        if not fold.folded and not fits:
            self.scroll_to(y=self.book.row_of(fold.head), animate=False, immediate=True)

    def _show_folded(self, keep: int | None) -> None:
        """Paint the rows after a fold; `keep` is the line that stays in sight."""
        if keep is not None:
            self.follow = False
        self._measure()
        if keep is not None:
            self._reveal(keep, middle=True)
        self.post_message(self.Changed())
