"""Servers screen: all swarm servers, one line each, with the details of one below."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.widget import Widget

from console.screens.engine.reading import ReadingScreen
from console.screens.engine.text import detail, table_head, table_row
from console.screens.overview.sections import starting
from console.session.app_state import EVERYTHING
from console.session.server_facts import as_ended
from console.text.format import elapsed
from console.text.lines import Line
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane
from console.widgets.section import Section

OLD_SECONDS = 3.0
"""Seconds after which a reading shows its age."""


class ServersScreen(ReadingScreen):
    """Lists all servers; shows the details of the one under the cursor."""

    area: ClassVar[str] = "Servers"
    shows_texts: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "One line for each swarm server: its state and the time in it, the global step, the "
        "progress of the batch by the server's own rule, claimed and free episodes, clients, and "
        "the age of these values when the server does not answer. A dash is an unknown value.\n"
        "Below, everything the server under the cursor reports, read every second: the three "
        "counters of its batch, its states with their durations, its clients by name, claimed "
        "episodes with idle time and limit, the tasks of this batch with their rewards, the "
        "newest call of any client and the server's log. This screen only reads."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"

    @property
    def target_server(self) -> str | None:
        chosen = self.query_one(ItemList).cursor
        return chosen if chosen in self.session.state.servers else None

    def compose_body(self) -> Iterable[Widget]:
        """Table and details; the progress of the start until there is a server."""
        yield Section(starting, frozenset({"starting", "clock", "link", "children"}), id="starting")
        opens = "Engine", "Its steps and its commands"
        yield ItemList(id="servers-table", opens=opens, below="#servers-detail")
        yield TextPane(id="servers-detail")

    def to_read(self) -> Sequence[str]:
        """The server under the cursor."""
        return (self.target_server,) if self.target_server is not None else ()

    def update_view(self, dirty: frozenset[str]) -> None:
        seen = self.session.seen
        before = self.query_one("#starting", Section)
        if before.display == seen:
            before.display = not seen
            for part in ("#servers-table", "#servers-detail"):
                self.query_one(part).display = seen
            dirty = EVERYTHING
        if not seen:
            before.paint(self.session, dirty)
        elif not dirty.isdisjoint({"*", "servers", "clock", "link", "proxy"}):
            self.paint_details()

    def paint_details(self) -> None:
        session, now, table = self.session, self.session.as_of, self.query_one(ItemList)
        servers = [as_ended(server, session) for server in session.state.servers.values()]
        table.show_head("head", table_head)
        table.show_rows(
            [*enumerate(servers)],
            lambda row: row[1].name,
            lambda row, width: table_row(row[1], row[0], now, width),
        )
        pane = self.query_one("#servers-detail", TextPane)
        server = session.state.servers.get(self.target_server or "")
        if server is None:
            pane.show_lines([(("There is no swarm server yet.", "$muted"),)])
            return
        shown, details = as_ended(server, session), self.details.get(server.name)
        trouble, ours = self._why_old(server.name), session.state.client_uuid

        def text(width: int) -> list[Line]:
            return detail(shown, details, trouble, now, width, ours)

        pane.show(tuple(text(100)), text)

    def _why_old(self, name: str) -> str:
        """Return why a reading is old; empty for a current one."""
        details, why = self.details.get(name), self.trouble.get(name, "")
        age = self.session.now() - details.at if details is not None else 0.0
        old = f"the columns after the state are {elapsed(age)} old" if age > OLD_SECONDS else ""
        return "; ".join(filter(None, (why, old)))

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show another server from its top."""
        self.query_one("#servers-detail", TextPane).scroll_home(animate=False)
        self.paint_details()
        self.read()

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the server on the Engine screen."""
        self.host.action_go("engine")
