"""Log screen: the logs of the processes."""

from collections.abc import Iterable
from typing import ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input

from console.screens.base import ConsoleScreen
from console.screens.log.model import head_lines, matches, whole_lines
from console.screens.log.widgets import LogView
from console.session.app_state import EVERYTHING
from console.session.logs import LEVELS, SOURCES, LogLine
from console.text.lines import Line
from console.text.sections import HEADING
from console.ui.keys import keys
from console.widgets.pane import TextPane
from console.widgets.section import TALL

_ROWS, _ROWS_TALL = 3, 6
"""Rows of the line under the cursor, on a small and on a tall terminal."""


class LogScreen(ConsoleScreen):
    """Lines of all processes, filtered by source, level and text."""

    area: ClassVar[str] = "Log"
    shows_texts: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "The output of proxy, engine and mock user, as written to the logs folder of the home, and "
        "the messages of this console, in order of time. A traceback is folded to the exception, "
        "state changes in a row to the newest one: Enter or a click unfolds them, t unfolds all. "
        "Up and Down move a cursor; the line under it is shown in full below. Search marks its "
        "matches, from the newest line back; n goes to the next older match, N to the newer one; x "
        "shows only lines that match. c copies the lines on screen, with folded ones in full."
    )
    AUTO_FOCUS: ClassVar[str | None] = "LogView"
    spare_keys: ClassVar[tuple[str, ...]] = ("copy",)
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("s", "source", "Source", "log.source", "All, or one process"),
            ("l", "level", "Level", "log.level", "From which level on"),
            ("slash", "search", "Search", "log.search", "", "/"),
            ("n", "next(False)", "Older", "log.next", "The match before this one"),
            ("x", "only", "Only", "log.only", "Hide all other lines"),
        ),
        *keys(
            ("N", "next(True)", "Newer", "log.previous"),
            ("c,y", "copy", "Copy", "log.copy", "Copy the lines on screen"),
            ("escape", "clear", "Clear", "log.clear"),
            shown=False,
        ),
    ]

    source: str | None = None
    level = "info"
    only = False
    _next = 0

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="log-head")
        yield LogView()
        yield TextPane(id="log-line")
        yield Input(placeholder="search", compact=True, id="log-search")

    @property
    def _view(self) -> LogView:
        return self.query_one(LogView)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Add new lines; all lines on the first show."""
        if "*" in dirty:
            self._view.replace(self._fitting(self.session.logs(self.source)))
        elif "log" in dirty:
            logs = [*self.session.logs(self.source)]
            new = [line for line in logs if line.number >= self._next]
            if new != logs[len(logs) - len(new) :]:  # older than a line on screen
                self._view.replace(self._fitting(logs))
            elif fitting := self._fitting(new):
                self._view.extend(fitting)
        self._next = self.session.log_store.total
        if not dirty.isdisjoint({"*", "log"}):
            self.paint()

    def _fitting(self, log_lines: Iterable[LogLine]) -> list[LogLine]:
        needle = self._view.book.needle if self.only else ""
        return [line for line in log_lines if matches(line, self.level, needle)]

    def on_resize(self, event: events.Resize) -> None:
        """Wrap the line under the cursor for another width."""
        self.call_after_refresh(self.paint)

    @on(LogView.Changed)
    def paint(self) -> None:
        """Paint the head, and below the list the line under the cursor in full."""
        head: list[Line] = [(("LOG", HEADING), ("  no log lines yet", "$muted"))]
        if self.session.log_store.total:
            view, source = self._view, self.source or "all"
            head = head_lines(view.book, source, self.level, self.only, view.follow)
        self.query_one("#log-head", TextPane).show_lines(head)
        rows = _ROWS_TALL if self.app.size.height >= TALL else _ROWS
        whole = whole_lines(self._view.book, max(20, self.size.width - 2), rows)
        line = self.query_one("#log-line", TextPane)
        line.display = bool(whole)
        line.show_lines(whole)
        self.refresh_bindings()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys for matches only with a search; in the search line `/` is text."""
        if action == "search":
            return not isinstance(self.focused, Input)
        if action in ("next", "only"):
            return bool(self._view.book.needle)
        return super().check_action(action, parameters)

    def action_source(self) -> None:
        """Switch to the next source."""
        names: list[str | None] = [None, *SOURCES]
        self.source = names[(names.index(self.source) + 1) % len(names)]
        self.update_view(EVERYTHING)

    def action_level(self) -> None:
        """Switch to the next level, debug after error."""
        self.level = LEVELS[(LEVELS.index(self.level) + 1) % len(LEVELS)]
        self.update_view(EVERYTHING)

    def action_search(self) -> None:
        """Open the search line."""
        line = self.query_one("#log-search", Input)
        line.add_class("-open")
        line.value = self._view.book.needle
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Mark the matches and go to the newest one."""
        event.stop()
        self._close_search()
        book = self._view.book
        book.needle = needle = event.value.strip().lower()
        if self.only:
            self.update_view(EVERYTHING)
        self._view.set_cursor(None)
        if needle and not self._view.search(forward=False):
            self.host.say(f"“{needle}” is not in these lines")

    def _close_search(self) -> None:
        self.query_one("#log-search", Input).remove_class("-open")
        self._view.focus()

    def action_next(self, forward: bool) -> None:
        """Go to the next or previous match."""
        needle = self._view.book.needle
        if needle and not self._view.search(forward):
            self.host.say(f"No further “{needle}”")

    def action_only(self) -> None:
        """Show only lines that match, or all again."""
        self.only = not self.only
        self.update_view(EVERYTHING)

    def action_copy(self) -> None:
        """Copy the lines on screen."""
        texts = self._view.book.whole_texts(self._view.rows_in_sight())
        self.host.copy("\n".join(texts), f"Copied {len(texts)} lines")

    def action_clear(self) -> None:
        """Leave the search line, then the search, then the cursor."""
        book = self._view.book
        if self.query_one("#log-search", Input).has_class("-open"):
            self._close_search()
        elif book.at is not None and not book.needle:
            self._view.set_cursor(None)
        else:
            book.needle, self.only = "", False
            self.update_view(EVERYTHING)
