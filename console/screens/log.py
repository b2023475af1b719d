"""Log screen: the logs of the processes."""

from collections.abc import Iterable
from itertools import takewhile
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from ajet_swarm.common.text import plural
from console.screens.base import ConsoleScreen
from console.session.app_state import Session
from console.session.logs import LEVELS, SOURCES, LogLine
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped
from console.widgets.log_view import LogView, matches
from console.widgets.section import TALL, Section

_ROWS, _ROWS_TALL = 3, 6
"""Rows of the line under the cursor, on a small and on a tall terminal."""


class LogScreen(ConsoleScreen):
    """Lines of all processes, filtered by source, level and text."""

    area: ClassVar[str] = "Log"
    shows_texts: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "The output of proxy, engine and mock user, as written to the logs folder of the home, and "
        "the messages of this console. A traceback is folded to the exception: Enter or a click "
        "unfolds it, t unfolds all. Up and Down move a cursor; the line under it is shown in full "
        "below. Search marks its matches, from the newest line back; n goes to the next older "
        "match, N to the newer one; x shows only lines that match. c copies the lines on screen, "
        "with folded tracebacks in full."
    )
    AUTO_FOCUS: ClassVar[str | None] = "LogView"
    spare_keys: ClassVar[tuple[str, ...]] = ("copy",)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "source", "Source", id="log.source", tooltip="All, or one process"),
        Binding("l", "level", "Level", id="log.level", tooltip="From which level on"),
        Binding("slash", "search", "Search", key_display="/", id="log.search"),
        Binding("n", "next(False)", "Older", id="log.next", tooltip="The match before this one"),
        Binding("N", "next(True)", "Newer", show=False, id="log.previous"),
        Binding("x", "only", "Only", id="log.only", tooltip="Hide all other lines"),
        Binding(
            "c,y",
            "copy",
            "Copy",
            show=False,
            id="log.copy",
            tooltip="Copy the lines on screen",
        ),
        Binding("escape", "clear", "Clear", show=False, id="log.clear"),
    ]

    source: str | None = None
    level = "info"
    needle = ""
    only = False
    _next = 0

    def compose_body(self) -> Iterable[Widget]:
        yield Section(self._head, frozenset({"log", "clock"}), id="log-head")
        yield LogView()
        yield Static(markup=False, id="log-line")
        yield Input(placeholder="search", compact=True, id="log-search")

    def on_mount(self) -> None:
        """Show when the list leaves or reaches its end."""
        view = self.query_one(LogView)
        self.watch(view, "follow", self._paint_head, init=False)
        self.watch(view, "at", self._paint_line, init=False)

    def on_resize(self, event: events.Resize) -> None:
        """Wrap the line under the cursor for another width."""
        self.call_after_refresh(self._paint_line)

    def _paint_line(self) -> None:
        """Paint the line under the cursor in full, below the others."""
        strip = self.query_one("#log-line", Static)
        entry = self.query_one(LogView).whole()
        strip.display = entry is not None
        if entry is None:
            return
        line, text = entry
        rows_shown = wrapped(text, max(20, self.size.width - 2))
        rows = _ROWS_TALL if self.app.size.height >= TALL else _ROWS
        if len(rows_shown) > rows:
            more = sum(len(row) for row in rows_shown[rows - 1 :])
            rows_shown = [
                *rows_shown[: rows - 1],
                f"… {more} more characters; c copies what is on screen",
            ]
        tone = {"error": "$engine-lost", "warning": "$engine-booting"}.get(line.level, "")
        strip.styles.height = rows + 1
        strip.update(Content("\n").join(Content.styled(row, tone) for row in rows_shown))

    def _head(self, session: Session, room: Room) -> Content:
        view = self.query_one(LogView)
        names = ["all", *SOURCES]
        present = self.source or "all"
        chosen = Content(" ").join(
            [
                Content.styled(f" {name} ", "bold reverse")
                if name == present
                else Content.styled(f" {name} ", "$muted")
                for name in names
            ]
        )
        if not session.log_store.total:
            return heading("LOG", "no log lines yet")
        notes = [f"from {self.level}", "following" if view.follow else "paused, End follows"]
        if self.needle:
            count = sum(1 for line in view.shown if self.needle in line.text.lower())
            notes.append(f"“{self.needle}” in {plural(count, 'line')}")
        if self.only:
            notes.append("only these")
        if count := view.folds.count:
            verb = "unfolds" if view.folds.folded else "folds"
            notes.append(f"{plural(count, 'traceback')}, t {verb}")
        notes.append(f"{plural(len(view.shown), 'line')} shown")
        below = Content.styled("     " + " · ".join(notes), "$muted")
        return lines(heading("LOG", chosen), below)

    def update_view(self, dirty: frozenset[str]) -> None:
        """Add new lines; all lines on the first show."""
        if "*" in dirty:
            self._refill()
        elif "log" in dirty:
            self._grow()
        self.query_one("#log-head", Section).paint(self.session, dirty)
        if "*" in dirty:
            self.refresh_bindings()

    def _grow(self) -> None:
        start = self._next
        logs = self.session.logs(self.source)
        new = list(takewhile(lambda line: line.number >= start, reversed(logs)))
        self._next = self.session.log_store.total
        view = self.query_one(LogView)
        fitting = [line for line in reversed(new) if self._fits(line)]
        if fitting:
            view.extend(fitting)

    def _refill(self) -> None:
        self._next = self.session.log_store.total
        fitting = [line for line in self.session.logs(self.source) if self._fits(line)]
        self.query_one(LogView).replace(fitting, self.needle)

    def _fits(self, line: LogLine) -> bool:
        return matches(line, self.level, self.needle if self.only else "")

    def _show(self) -> None:
        self.update_view(frozenset({"*"}))

    def action_source(self) -> None:
        """Switch to the next source."""
        names: list[str | None] = [None, *SOURCES]
        self.source = names[(names.index(self.source) + 1) % len(names)]
        self._show()

    def action_level(self) -> None:
        """Switch to the next level, debug after error."""
        self.level = LEVELS[(LEVELS.index(self.level) + 1) % len(LEVELS)]
        self._show()

    def action_search(self) -> None:
        """Open the search line."""
        line = self.query_one("#log-search", Input)
        line.add_class("-open")
        line.value = self.needle
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Mark the matches and go to the newest one."""
        event.stop()
        self.needle = event.value.strip().lower()
        self._close_search()
        view = self.query_one(LogView)
        if self.only:
            self._refill()
        view.mark(self.needle)
        if self.needle and not view.jump(self.needle, forward=False):
            self.host.say(f"“{self.needle}” is not in these lines")
        self._paint_head()

    def action_next(self, forward: bool) -> None:
        """Go to the next or previous match."""
        if self.needle and not self.query_one(LogView).jump(self.needle, forward):
            self.host.say(f"No further “{self.needle}”")
        self._paint_head()

    def action_only(self) -> None:
        """Show only lines that match, or all again."""
        self.only = not self.only
        self._show()

    def action_copy(self) -> None:
        """Copy the lines on screen."""
        texts = self.query_one(LogView).visible_texts()
        self.host.copy("\n".join(texts), f"Copied {len(texts)} lines")

    def action_clear(self) -> None:
        """Leave the search line, then the search, then the cursor."""
        line = self.query_one("#log-search", Input)
        if line.has_class("-open"):
            self._close_search()
            return
        view = self.query_one(LogView)
        if view.at is not None and not self.needle:
            view.at = None
            return
        self.needle, self.only = "", False
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys for matches only with a search; in the search line `/` is text."""
        if action == "search":
            return not isinstance(self.focused, Input)
        if action in ("next", "only"):
            return bool(self.needle)
        return super().check_action(action, parameters)

    def _close_search(self) -> None:
        self.query_one("#log-search", Input).remove_class("-open")
        self.query_one(LogView).focus()

    def _paint_head(self) -> None:
        self.query_one("#log-head", Section).paint(self.session, frozenset({"*"}))
        self.refresh_bindings()
