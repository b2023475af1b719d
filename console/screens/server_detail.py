"""Server detail screen: claimed episodes one by one, clients, tasks, log of the server."""

from collections.abc import Iterable
from typing import ClassVar

import msgspec
from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plural
from console.screens.base import ConsoleScreen
from console.screens.dialogs.abort import AbortScreen
from console.screens.group.screen import GroupScreen
from console.session.server_facts import as_ended
from console.text.format import UNKNOWN, duration, elapsed, state_word
from console.text.lines import Line, fit
from console.text.server_color import server_color
from console.views.servers import detail
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from core.control_payloads import EpisodeDetails, ServerDetails
from core.state import Group, State

POLL_SECONDS = 1.0
LATE = 0.8
"""Share of the idle limit from which an episode is marked."""
_ID, _IDLE, _CALLS, _WHOSE = 10, 16, 6, 18


class EpisodeList(ItemList):
    """Claimed episodes, the longest idle first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown,space", "screen.scroll_detail(12)", "Scroll below", key_display="PgDn"),
        Binding("pageup", "screen.scroll_detail(-12)", "Page up", show=False),
        Binding("enter", "open", "Group", tooltip="Open its group, if the episode is ours"),
    ]


class EpisodeAbort(AbortScreen):
    """Asks before an episode is taken from its client."""

    RECORDED_IN: ClassVar[str] = "in the proxy's log"


class ServerDetailScreen(ConsoleScreen):
    """Reads the server every second while the screen is in front."""

    area: ClassVar[str] = "Inside"
    help_text: ClassVar[str] = (
        "Claimed episodes of the server, the longest idle first: idle time against the limit after "
        "which the server takes it back, calls, and its holder. Enter opens the group of one of "
        "ours. x aborts the one under the cursor, even another client's: AgentJet does not check "
        "the owner. In ROLLING it goes back to the pool, in ROLLING POST it is deleted.\n"
        "Below: the batch, clients by name, tasks with their rewards, the server's own log."
    )
    AUTO_FOCUS: ClassVar[str | None] = "EpisodeList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "x",
            "abort",
            "Abort",
            id="engine.abort_episode",
            tooltip="Take the episode from the client that holds it; asks first",
        ),
        Binding("escape", "dismiss", "Back", id="inside.leave"),
    ]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._details: ServerDetails | None = None
        self._error = ""

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="inside-head")
        yield EpisodeList(id="inside-episodes")
        yield TextPane(id="inside-detail")

    def on_mount(self) -> None:
        """Read at once, then every second."""
        self._read()
        self.set_interval(POLL_SECONDS, self._read)

    @property
    def target_server(self) -> str | None:
        return self._server

    @property
    def chosen(self) -> EpisodeDetails | None:
        """The episode under the cursor."""
        key = self.query_one(EpisodeList).cursor
        details = self._details
        return (
            next((episode for episode in details.episodes if episode.uuid == key), None)
            if details
            else None
        )

    # --- reading -----------------------------------------------------------------------------

    def _read(self) -> None:
        if self.is_current and self.session.lost_at is None:
            self._fetch()

    @work(group="look", exclusive=True, exit_on_error=False)
    async def _fetch(self) -> None:
        try:
            self._details, self._error = await self.session.server_details(self._server), ""
        except AjetError as error:
            self._error = f"it cannot be read now: {error.what}"
        if self.is_mounted:
            self.host.guarded(self._paint)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the state of the server and the age of the last reading."""
        if any(mark in ("*", "servers", "clock", "link") for mark in dirty):
            self._paint()

    def _paint(self) -> None:
        state, details, now = self.session.state, self._details, self.session.as_of
        server = state.servers.get(self._server)
        if server is None:
            self.query_one("#inside-head", TextPane).show_lines(
                [((f" {one_line(self._server, 40)} is not a server of this proxy", "$warning"),)]
            )
            return
        shown = as_ended(server, self.session)
        word, tone = state_word(shown, now)
        episodes = details.episodes if details is not None else ()
        head: Line = (
            (f" {one_line(server.name, 30)}", f"bold {server_color(state, server.name)}"),
            (f"  {word}  ", f"bold {tone}"),
            (_held(details), "$muted"),
        )
        self.query_one("#inside-head", TextPane).show_lines([head])
        table = self.query_one(EpisodeList)
        table.show_head("head", _head)
        owners = holders(state, self._server)
        ours = state.client_uuid
        table.show_items(
            (episodes, tuple(owners)),
            lambda width: [
                ListItem(episode.uuid, (_row(episode, owners.get(episode.uuid), ours, width),))
                for episode in episodes
            ],
        )
        if episodes and not table.cursor:
            table.action_edge(0)
        rest = msgspec.structs.replace(details, episodes=()) if details is not None else None
        trouble = self._error
        self.query_one("#inside-detail", TextPane).show(
            tuple(detail(shown, rest, trouble, now, 100, ours)),
            lambda width: detail(shown, rest, trouble, now, width, ours),
        )
        self.refresh_bindings()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer an abort only for an episode, and not on a read-only console."""
        if action == "abort":
            return (
                not self.session.read_only and self._details is not None and self.chosen is not None
            )
        return True

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the group of one of our episodes."""
        group = holders(self.session.state, self._server).get(event.key)
        if group is not None:
            self.app.push_screen(GroupScreen(group.group_id))

    @work(group="command", exit_on_error=False)
    async def action_abort(self) -> None:
        """Take the episode from its client."""
        chosen = self.chosen
        if chosen is None:
            return
        state = self.session.state
        group = holders(state, self._server).get(chosen.uuid)
        server = state.servers[self._server]
        reason = await self.host.push_screen_wait(
            EpisodeAbort(
                f"Abort episode {chosen.uuid[:8]}?",
                episode_loss(chosen, group, state.client_uuid, server.state),
            )
        )
        if reason is None:
            return
        more = {"reason": reason} if reason else {}
        await self.host.send_command(
            "engine.abort_episode", server=self._server, episode=chosen.uuid, **more
        )
        self._read()

    def action_scroll_detail(self, rows: int) -> None:
        """Scroll the text below."""
        self.query_one("#inside-detail", TextPane).scroll_relative(y=rows, animate=False)


def holders(state: State, server: str) -> dict[str, Group]:
    """Return the open group of each of our episodes."""
    return {
        candidate.episode_uuid: group
        for group in state.open_groups()
        if group.server == server
        for candidate in group.candidates
        if candidate.episode_uuid
    }


def episode_loss(episode: EpisodeDetails, group: Group | None, ours: str, state: str) -> str:
    """Return the cost of aborting an episode, and who bears it."""
    if group is not None:
        whose = f"It is a candidate of your group {group.group_id}: “{one_line(group.query, 50)}”"
    elif episode.client == ours:
        whose = "It is yours; no open group holds it any more."
    else:
        whose = f"Client {one_line(episode.client or UNKNOWN, 40)} holds it and is not consulted."
    calls = "" if episode.calls is None else f", {plural(episode.calls, 'call')}"
    idle = f"Idle {elapsed(episode.idle)} of {elapsed(episode.limit)}{calls}."
    fate = {
        "ROLLING": "It goes back to the pool.",
        "ROLLING_POST": "It is deleted: the update continues without it.",
    }.get(state, "Its fate depends on the engine.")
    return "\n".join([whose, idle, fate])


def _held(details: ServerDetails | None) -> str:
    if details is None:
        return "reading…"
    if details.claimed is None:
        return "it does not report its episodes"
    free = ", free ones unknown" if details.free is None else f", {details.free} free"
    slots = details.claimed + (details.free or 0)
    return f"{plural(details.claimed, 'episode')} claimed of {slots} slots{free}"


def _head(width: int) -> Line:
    return (
        (
            fit(
                f" {'episode':<{_ID}}{'idle / limit':<{_IDLE}}{'calls':>{_CALLS}}  "
                f"{'held by':<{_WHOSE}}task",
                width,
            ),
            "$muted",
        ),
    )


def _row(episode: EpisodeDetails, group: Group | None, ours: str, width: int) -> Line:
    late = (
        episode.idle is not None
        and episode.limit is not None
        and episode.idle > LATE * episode.limit
    )
    idle = f"{duration(episode.idle)} / {duration(episode.limit)}"
    calls = UNKNOWN if episode.calls is None else str(episode.calls)
    whose = one_line(episode.client or UNKNOWN, _WHOSE - 2)
    if group is not None:
        whose = f"us {group.group_id[:10]}"
    elif episode.client == ours:
        whose = "us"
    kind = "eval  " if episode.kind == "eval" else ""
    about = group.query if group is not None else episode.task
    room = max(4, width - (_ID + _IDLE + _CALLS + _WHOSE + 4))
    return (
        (f" {one_line(episode.uuid, 8):<{_ID}}", ""),
        (f"{idle:<{_IDLE}}", "bold $warning" if late else ""),
        (f"{calls:>{_CALLS}}  ", "$muted"),
        (f"{whose:<{_WHOSE}}", "" if whose.startswith("us") else "$warning"),
        (fit(kind + one_line(about, 200), room), "$muted"),
    )
