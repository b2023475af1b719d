"""Servers screen: all swarm servers, one line each, with the details of one below."""

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ajet_swarm.common.errors import AjetError
from console.screens.base import ConsoleScreen
from console.screens.overview.sections import starting
from console.session.server_facts import as_ended
from console.text.format import elapsed
from console.text.lines import Line
from console.views.servers import detail, table_head, table_row
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from console.widgets.section import Section
from core.control_payloads import ServerDetails

POLL_SECONDS = 1.0
"""Seconds between two readings of the server under the cursor, while the screen is in front."""
OLD_SECONDS = 3.0
"""Seconds after which a reading shows its age."""


class ServerTable(ItemList):
    """One line for each server; the page keys scroll the details below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "screen.scroll_detail(-12)", "Page up", show=False),
        Binding(
            "pagedown,space",
            "screen.scroll_detail(12)",
            "Scroll below",
            key_display="PgDn",
            tooltip="Clients, episodes, tasks, the newest call, the server's log",
        ),
        Binding("enter", "open", "Engine", tooltip="The same server with its steps and commands"),
    ]


class ServersScreen(ConsoleScreen):
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
    AUTO_FOCUS: ClassVar[str | None] = "ServerTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("J,shift+down", "scroll_detail(1)", "Scroll", show=False),
        Binding("K,shift+up", "scroll_detail(-1)", "Scroll back", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._details: dict[str, ServerDetails] = {}
        self._errors: dict[str, str] = {}

    @property
    def target_server(self) -> str | None:
        chosen = self.query_one(ServerTable).cursor
        return chosen if chosen in self.session.state.servers else None

    def compose_body(self) -> Iterable[Widget]:
        """Table and details; the progress of the start until there is a server."""
        yield Section(starting, frozenset({"starting", "clock", "link", "children"}), id="starting")
        yield ServerTable(id="servers-table")
        yield TextPane(id="servers-detail")

    def on_mount(self) -> None:
        """Read while the screen is in front."""
        self.set_interval(POLL_SECONDS, self._read)

    # --- reading -----------------------------------------------------------------------------

    def _read(self) -> None:
        name = self.target_server
        if self.is_current and name is not None and self.session.lost_at is None:
            self._fetch(name)

    @work(group="look", exclusive=True, exit_on_error=False)
    async def _fetch(self, name: str) -> None:
        try:
            self._details[name] = await self.session.server_details(name)
            self._errors.pop(name, None)
        except AjetError as error:
            self._errors[name] = f"it cannot be read now: {error.what}"
        if self.is_mounted:
            self.host.guarded(self._paint)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        seen = self.session.seen
        before = self.query_one("#starting")
        if before.display == seen:
            before.display = not seen
            for shown in ("#servers-table", "#servers-detail"):
                self.query_one(shown).display = seen
            dirty = frozenset({"*"})
        if not seen:
            self.query_one("#starting", Section).paint(self.session, dirty)
        elif any(mark in ("*", "servers", "clock", "link", "proxy") for mark in dirty):
            self._paint()

    def _paint(self) -> None:
        session = self.session
        table = self.query_one(ServerTable)
        now = session.as_of
        servers = tuple(as_ended(server, session) for server in session.state.servers.values())
        table.show_head("head", table_head)

        def rows(width: int) -> list[ListItem]:
            numbered = enumerate(servers)
            return [
                ListItem(server.name, (table_row(server, at, now, width),))
                for at, server in numbered
            ]

        made_from = tuple(table_row(server, at, now, 120) for at, server in enumerate(servers))
        table.show_items(made_from, rows)
        if not table.cursor and servers:
            table.action_edge(0)
        self._paint_detail()

    def _paint_detail(self) -> None:
        session, name = self.session, self.target_server
        pane = self.query_one("#servers-detail", TextPane)
        server = session.state.servers.get(name or "")
        if server is None:
            pane.show_lines([(("There is no swarm server yet.", "$muted"),)])
            return
        details, now = self._details.get(server.name), session.as_of
        shown = as_ended(server, session)
        trouble, ours = self._why_old(server.name, details), session.state.client_uuid

        def build(width: int) -> list[Line]:
            return detail(shown, details, trouble, now, width, ours)

        pane.show(tuple(build(100)), build)

    def _why_old(self, name: str, details: ServerDetails | None) -> str:
        """Return why a reading is old; empty for a current one."""
        why = self._errors.get(name, "")
        age = self.session.now() - details.at if details is not None else 0.0
        if details is not None and age > OLD_SECONDS:
            what = f"the columns after the state are {elapsed(age)} old"
            return f"{why}; {what}" if why else what
        return why

    # --- keys --------------------------------------------------------------------------------

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show another server from its top."""
        self.query_one("#servers-detail", TextPane).scroll_home(animate=False)
        self._paint_detail()
        self._read()

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the server on the Engine screen."""
        self.host.action_go("engine")

    def action_scroll_detail(self, rows: int) -> None:
        """Scroll the details."""
        self.query_one("#servers-detail", TextPane).scroll_relative(
            y=rows, animate=False, immediate=True
        )
