"""Inside a server: its claimed episodes one by one, and what else it reports."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from ajet_swarm.common.text import one_line
from console.screens.dialogs.abort import AbortScreen
from console.screens.engine.reading import ReadingScreen
from console.screens.engine.text import EPISODES, Held, detail, episode_loss, held_text
from console.screens.group.screen import GroupScreen
from console.session.server_facts import as_ended
from console.text.format import server_color, state_word
from console.text.lines import Line
from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane
from core.control_payloads import EpisodeDetails
from core.state import Group, State


class EpisodeAbort(AbortScreen):
    """Asks before an episode is taken from its client."""

    RECORDED_IN: ClassVar[str] = "in the proxy's log"


class InsideScreen(ReadingScreen):
    """The episodes of one server, the longest idle first; the text about the server below."""

    area: ClassVar[str] = "Inside"
    help_text: ClassVar[str] = (
        "Claimed episodes of the server, the longest idle first: idle time against the limit after "
        "which the server takes it back, calls, and its holder. Enter opens the group of one of "
        "ours. x aborts the one under the cursor, even another client's: AgentJet does not check "
        "the owner. In ROLLING it goes back to the pool, in ROLLING POST it is deleted.\n"
        "Below: the batch, clients by name, tasks with their rewards, the server's own log."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("x", "abort", "Abort", "engine.abort_episode", "Take it from its client; asks first"),
        ("escape", "dismiss", "Back", "inside.leave"),
    )

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="inside-head")
        opens = "Group", "If the episode is ours"
        yield ItemList(id="inside-episodes", opens=opens, below="#inside-detail")
        yield TextPane(id="inside-detail")

    @property
    def target_server(self) -> str | None:
        return self._server

    @property
    def _episodes(self) -> Sequence[EpisodeDetails]:
        details = self.details.get(self._server)
        return details.episodes if details is not None else ()

    @property
    def chosen(self) -> EpisodeDetails | None:
        """The episode under the cursor."""
        key = self.query_one(ItemList).cursor
        return next((episode for episode in self._episodes if episode.uuid == key), None)

    def to_read(self) -> Sequence[str]:
        return (self._server,)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the state of the server and the age of the last reading."""
        if not dirty.isdisjoint({"*", "servers", "clock", "link"}):
            self.paint_details()

    def paint_details(self) -> None:
        state, now = self.session.state, self.session.as_of
        details, server = self.details.get(self._server), state.servers.get(self._server)
        head_pane = self.query_one("#inside-head", TextPane)
        if server is None:
            why = f" {one_line(self._server, 40)} is not a server of this proxy"
            head_pane.show_lines([((why, "$warning"),)])
            return
        shown = as_ended(server, self.session)
        word, tone = state_word(shown, now)
        color = server_color(state, server.name)
        name = (f" {one_line(server.name, 30)}", f"bold {color}")
        head_pane.show_lines(
            [(name, (f"  {word}  ", f"bold {tone}"), (held_text(details), "$muted"))]
        )
        episodes, table = self._episodes, self.query_one(ItemList)
        owners, ours = holders(state, self._server), state.client_uuid
        held = [Held(episode, owners.get(episode.uuid), ours) for episode in episodes]
        table.show_table(EPISODES, held, lambda row: row.episode.uuid)
        rest = msgspec.structs.replace(details, episodes=()) if details is not None else None
        trouble = self.trouble.get(self._server, "")

        def text(width: int) -> list[Line]:
            return detail(shown, rest, trouble, now, width, ours)

        self.query_one("#inside-detail", TextPane).show(tuple(text(100)), text)
        self.refresh_bindings()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer an abort only for an episode, and not on a read-only console."""
        return action != "abort" or (not self.session.read_only and self.chosen is not None)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the group of one of our episodes."""
        group = holders(self.session.state, self._server).get(event.key)
        if group is not None:
            self.app.push_screen(GroupScreen(group.group_id))

    @work(group="command", exit_on_error=False)
    async def action_abort(self) -> None:
        """Take the episode from its client."""
        if (chosen := self.chosen) is None:
            return
        state = self.session.state
        group = holders(state, self._server).get(chosen.uuid)
        loss = episode_loss(chosen, group, state.client_uuid, state.servers[self._server].state)
        question = EpisodeAbort(f"Abort episode {chosen.uuid[:8]}?", loss)
        reason = await self.host.push_screen_wait(question)
        if reason is not None:
            args = {"server": self._server, "episode": chosen.uuid}
            args |= {"reason": reason} if reason else {}
            await self.host.send_command("engine.abort_episode", **args)
            self.read()


def holders(state: State, server: str) -> dict[str, Group]:
    """Return the open group of each of our episodes."""
    return {
        candidate.episode_uuid: group
        for group in state.open_groups()
        if group.server == server
        for candidate in group.candidates
        if candidate.episode_uuid
    }
