"""The log view; only visible lines are drawn."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import reactive

from console.models.log_fold import Block, Folds
from console.session.logs import LEVELS, LogLine
from console.text.wrap import safe
from console.widgets.log_lines import LogLines

LINE_CAP = 2_000
"""Most characters of one line on screen."""
MAX_LINES = 20_000
"""Lines stored for scrolling back."""
SPARE_LINES = 2_000
"""Extra lines until the oldest are dropped in one batch."""
_HEAD = 18
_FOLD = 16
"""Cells before the text, and the extra cells of a folded traceback."""


def matches(line: LogLine, level: str, query: str) -> bool:
    """Return whether a line has at least that level and contains the query."""
    if LEVELS.index(line.level) < LEVELS.index(level):
        return False
    return not query or query in line.text.lower()


class LogView(LogLines, can_focus=True):
    """Shows lines with time, source and level; stays at the end while `follow` is on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("end", "follow", "Follow", id="log.follow", tooltip="Stay at the newest line"),
        Binding("home", "scroll_home", "First line", show=False),
        Binding("up", "step(-1)", "Line", id="log.up", tooltip="The line above, in full below"),
        Binding("down", "step(1)", "Next line", show=False, id="log.down"),
        Binding(
            "t",
            "fold_all",
            "Fold",
            show=False,
            id="log.fold",
            tooltip="Fold or unfold the tracebacks",
        ),
        Binding(
            "enter",
            "fold_one",
            "Unfold",
            show=False,
            id="log.fold_one",
            tooltip="The traceback under the cursor, else the newest visible one",
        ),
    ]

    follow = reactive(True)
    """Whether new lines stay in sight."""

    def __init__(self) -> None:
        super().__init__()
        self._widest = 0

    def replace(self, lines: Iterable[LogLine], query: str) -> None:
        """Show these lines and no others."""
        self.shown, self._texts, self._widest = [], [], 0
        self.folds = Folds(self.folds.folded)
        self._query = query.lower()
        self.at = None
        self.extend(lines)
        self.refresh()

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Add lines at the end."""
        for line in lines:
            text = safe(line.text[:LINE_CAP]).replace("\t", "    ").replace("\n", "␊")
            self.folds.add(len(self.shown), line)
            self.shown.append(line)
            self._texts.append(text)
            self._widest = max(self._widest, cell_len(text))
        if len(self.shown) > MAX_LINES + SPARE_LINES:
            self._drop_oldest(len(self.shown) - MAX_LINES)
        self._measure()

    def _drop_oldest(self, extra: int) -> None:
        """Drop the oldest lines."""
        dropped_rows = self.folds.row_of(extra)
        remaining = self.shown[extra:]
        del self._texts[:extra]
        self.shown, self.folds = remaining, Folds(self.folds.folded)
        for place, line in enumerate(remaining):
            self.folds.add(place, line)
        self.at = None if self.at is None or self.at < extra else self.at - extra
        if not self.follow:
            self.scroll_to(y=max(0, self.scroll_offset.y - dropped_rows), animate=False)

    def _measure(self) -> None:
        self.virtual_size = Size(self._widest + _HEAD + _FOLD, len(self.folds.rows))
        if self.follow:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        self.refresh()

    def on_resize(self) -> None:
        """Keep the end, or the line under the cursor, in sight."""
        if self.follow:
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        if self.at is not None:
            self._reveal(self.folds.row_of(self.at))

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Stop following when scrolled up; follow again at the end."""
        super().watch_scroll_y(old, new)
        self.follow = new >= self.max_scroll_y

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self.follow, self.at = True, None
        self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)

    def action_step(self, by: int) -> None:
        """Move the cursor by a line; an invisible cursor moves to the nearer edge first."""
        seen = self._rows_in_sight()
        if not seen:
            return
        if self.at is None or self.at not in seen:
            self.at = seen[-1] if by < 0 or self.at is None else seen[0]
            return
        row = self.folds.row_of(self.at) + by
        if row >= len(self.folds.rows):
            self.action_follow()
        else:
            self.at = self.folds.rows[max(0, row)]
            self._reveal(max(0, row))

    def _reveal(self, row: int) -> None:
        """Scroll no further than needed."""
        top, height = self.scroll_offset.y, self.size.height
        if not top <= row < top + height:
            to = row if row < top else row - height + 1
            self.scroll_to(y=to, animate=False, immediate=True)

    def whole(self) -> tuple[LogLine, str] | None:
        """Return the line under the cursor in full; None without a cursor."""
        if self.at is None or self.at >= len(self.shown):
            return None
        return self.shown[self.at], self._displayed_text(self.at)

    def visible_texts(self) -> Sequence[str]:
        """Return the lines on screen in full, with folded tracebacks unfolded."""
        texts: list[str] = []
        for place in self._rows_in_sight():
            block = self.folds.block(place)
            places = block.lines if block is not None and block.folded else [place]
            texts += [self.shown[place].text for place in places]
        return texts

    def _rows_in_sight(self) -> Sequence[int]:
        top = self.scroll_offset.y
        return self.folds.rows[top : top + self.size.height]

    # --- folding -----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        if action == "follow":
            return not self.follow or self.at is not None
        return bool(self.folds.count) if action in ("fold_all", "fold_one") else True

    def action_fold_all(self) -> None:
        """Fold or unfold all tracebacks."""
        keep = self._middle()
        self.folds.set_all(not self.folds.folded)
        self._folded(keep)

    def action_fold_one(self) -> None:
        """Fold or unfold the traceback under the cursor, else the newest visible one."""
        blocks = [self.folds.block(place) for place in self._rows_in_sight()]
        marked = self.folds.block(self.at) if self.at is not None else None
        block = marked or next((block for block in reversed(blocks) if block is not None), None)
        if block is not None:
            self._toggle(block)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the click; fold or unfold a traceback there."""
        row = event.y + self.scroll_offset.y
        if row < len(self.folds.rows):
            self.at = self.folds.rows[row]
            block = self.folds.block(self.folds.rows[row])
            if block is not None and self.folds.rows[row] == block.head:
                self._toggle(block)

    def _toggle(self, block: Block) -> None:
        self.folds.set(block, not block.folded)
        fits = len(block.lines) < self.size.height
        self._folded(None if self.follow and (fits or block.folded) else block.head)
        if not block.folded and not fits:
            self.scroll_to(y=self.folds.row_of(block.head), animate=False, immediate=True)

    def _middle(self) -> int | None:
        """Return the index of the line that stays in sight."""
        rows = self._rows_in_sight()
        return None if self.follow or not rows else rows[len(rows) // 2]

    def _folded(self, keep: int | None) -> None:
        if keep is not None:
            self.follow = False
        self._measure()
        if keep is not None:
            self._show_line(keep)

    def _show_line(self, place: int) -> None:
        row, top, height = self.folds.row_of(place), self.scroll_offset.y, self.size.height
        if not top <= row < top + height:
            self.follow = False
            self.scroll_to(y=max(0, row - height // 2), animate=False, immediate=True)

    def jump(self, query: str, forward: bool) -> bool:
        """Go to the next or previous line that contains `query`; return False when there is none.

        The first jump searches back from the end.
        """
        count, needle = len(self.shown), query.lower()
        start = count if self.at is None else self.at
        order = range(start + 1, count) if forward else range(start - 1, -1, -1)
        for at in order:
            if needle in self.shown[at].text.lower():
                self.at = at
                block = self.folds.block(at)
                if block is not None and block.folded:
                    self.folds.set(block, False)
                    self._measure()
                self._show_line(at)
                self.refresh()
                return True
        return False

    def mark(self, query: str) -> None:
        """Mark matches of `query`."""
        self._query = query.lower()
        self.at = None
        self.refresh()
