"""A naive version of the same list: one message per event, a full refill of the table for each.

    python -m bench.console.naive URL TOKEN FILE

It reads the same feed through the same client and reducer, and holds the same number of groups.
FILE gets the number of events it has taken in.
"""

import sys
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.message import Message
from textual.widgets import DataTable, Static

from bench.console.terminal import BAND
from console.views.group import columns_for, row_line
from core.events import Event
from core.reducer import reduce
from core.state import State
from proxy.control.client import ControlClient


class Happened(Message):
    """One event of the feed."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self.event = event


class NaiveApp(App[None]):
    """A table of requests, newest at the top."""

    CSS = (
        "Static { height: 1; } DataTable { height: 1fr; }"
        f" DataTable > .datatable--cursor {{ background: {BAND}; }}"
    )

    def __init__(self, url: str, token: str, orders: Path) -> None:
        super().__init__()
        self._orders = orders
        self._client = ControlClient(url, token)
        self._groups = State()
        self._handled = 0

    def compose(self) -> ComposeResult:
        """Create a title and the table."""
        yield Static("Requests")
        yield DataTable(cursor_type="row")

    @property
    def table(self) -> DataTable[Any]:
        """Return the table."""
        return self.query_one(DataTable)

    def on_mount(self) -> None:
        """Start to follow the feed."""
        self.table.focus()
        self.run_worker(self._follow())

    async def _follow(self) -> None:
        self._groups = await self._client.snapshot()
        self._refill()
        async for event in self._client.events(self._groups.seq, console=True):
            if isinstance(event, Event):
                self.post_message(Happened(event))

    def on_happened(self, message: Happened) -> None:
        """Apply the event and redraw everything."""
        reduce(self._groups, message.event)
        self._handled += 1
        self._refill()
        partial = self._orders.with_suffix(".new")  # a reader must not see an empty file
        partial.write_text(str(self._handled))
        partial.replace(self._orders)

    def _refill(self) -> None:
        table, at = self.table, self.table.cursor_row
        columns = columns_for(158, several_servers=False)
        table.clear(columns=True)
        table.add_columns(*(column.title or "-" for column in columns))
        for group in reversed(self._groups.groups.values()):
            pieces = row_line(group, columns, group.opened_at)
            table.add_row(*(text for text, _ in pieces[1::2]))
        table.move_cursor(row=at, animate=False)


if __name__ == "__main__":
    NaiveApp(sys.argv[1], sys.argv[2], Path(sys.argv[3])).run()
