"""The panels of one server: its state and steps, and its checkpoints with keys of their own."""

from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from ajet_swarm.common.text import ago, one_line
from console.models.app_host import host
from console.models.available_commands import AvailableCommand, offered
from console.screens.engine.panel import server_panel
from console.screens.run_command import run_available
from console.session.app_state import EVERYTHING, Session
from console.text.lines import fit
from console.text.sections import Room, heading, lines
from console.ui.keys import keys
from console.widgets.section import Section
from core.control_payloads import HardwareFacts
from core.events import Checkpoint

_SHORT, _TALL = 4, 10
"""Rows of the list in a short and in a tall terminal."""


class ServerPanel(Section, can_focus=True):
    """One server; the keys apply to the focused one."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.hardware: HardwareFacts | None = None
        """What its policy runs on, as last read; None where that is not measured."""
        super().__init__(self._panel, frozenset({"server", "servers", "clock"}))

    def _panel(self, session: Session, room: Room) -> Content:
        server = session.state.servers.get(self.server)
        if server is None:
            return Content("")
        return server_panel(server, session, room, self.hardware)


class CheckpointPanel(Section, can_focus=True):
    """The checkpoints of one server; hidden if the server has no checkpoint support."""

    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("down,j", "move(1)", "Down"),
        ("up", "move(-1)", "Up"),
        ("b,enter", "send('engine.restore')", "Restore", "engine.restore", "Asks first", "b"),
        ("d", "send('engine.prune')", "Prune", "engine.prune", "Asks how many stay, then again"),
        ("z", "send('engine.reset')", "Reset to base", "engine.reset", "Step 0; asks first"),
    )

    def __init__(self, server: str) -> None:
        self.server = server
        self._cursor = ""
        self._place = 0
        self._saved: tuple[Checkpoint, ...] = ()
        super().__init__(self._panel, frozenset({"server", "servers", "clock"}))
        self.display = False

    @property
    def chosen(self) -> Checkpoint | None:
        """The checkpoint under the cursor."""
        return self._saved[self._place] if self._saved else None

    def paint(self, session: Session, dirty: frozenset[str]) -> None:
        """Update the list, then paint; hide the panel when there is no list."""
        server = session.state.servers.get(self.server)
        saved = server.checkpoints if server is not None else None
        if (saved is not None) != self.display:
            self.display = saved is not None
            dirty = EVERYTHING
        self._update_list(saved or ())
        super().paint(session, dirty)

    def _update_list(self, saved: tuple[Checkpoint, ...]) -> None:
        """Keep the cursor on its checkpoint, or at the same place when that is gone."""
        self._saved = saved
        names = [checkpoint.name for checkpoint in saved]
        if self._cursor in names:
            self._place = names.index(self._cursor)
        else:
            self._place = max(0, min(self._place, len(saved) - 1))
        self._cursor = names[self._place] if names else ""

    def _offer(self, name: str) -> AvailableCommand | None:
        """Return a command that a key sends now; None when there is none."""
        offer = offered(host(self).session, name, self.server)
        if offer is None or name != "engine.restore":
            return offer
        if self.chosen is None or self.chosen.damaged:
            return None
        return replace(offer, args={**offer.args, "name": self.chosen.name}, ask="")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect on the checkpoint under the cursor."""
        return action != "send" or self._offer(str(parameters[0])) is not None

    def action_send(self, name: str) -> None:
        """Restore, prune or reset: ask for what is missing, then confirm the loss."""
        if (offer := self._offer(name)) is not None:
            run_available(host(self), offer)

    def action_move(self, by: int) -> None:
        """Move the cursor; past an end of the list the focus moves on."""
        place = self._place + by
        if not 0 <= place < len(self._saved):
            self.screen.focus_next() if by > 0 else self.screen.focus_previous()
            return
        self._place, self._cursor = place, self._saved[place].name
        self.repaint()
        self.screen.refresh_bindings()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.repaint()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.repaint()

    def _panel(self, session: Session, room: Room) -> Content:
        server = session.state.servers.get(self.server)
        if server is None:
            return Content("")
        count = len(self._saved) + server.checkpoints_more
        if not count:
            return heading("CHECKPOINTS", "none yet: the first is saved with the first update")
        hint = "" if self.has_focus else "w saves one, Tab goes to them"
        rows = self._window(_TALL if room.tall else _SHORT)
        shown = [heading("CHECKPOINTS", str(count), "" if session.read_only else hint)]
        for place in rows:
            here = self.has_focus and place == self._place
            shown.append(checkpoint_line(self._saved[place], session.now(), room.width, here))
        if hidden := count - len(rows):
            shown.append(Content.styled(f"  and {hidden} more", "$muted"))
        return lines(*shown)

    def _window(self, most: int) -> range:
        count = len(self._saved)
        start = max(0, min(self._place - most // 2, count - most))
        return range(start, min(start + most, count))


def checkpoint_line(checkpoint: Checkpoint, now: float, width: int, here: bool) -> Content:
    """Return `▸ step-000020          step 20   3m ago   10.9 MB`."""
    room = max(16, min(40, width - 44))
    step, tone, note = f"step {checkpoint.step}", "" if checkpoint.kept else "bold", ""
    if checkpoint.damaged:
        step, tone = "✖ damaged", "$engine-lost"
    elif checkpoint.kept and width >= 76:
        note = "  of the engine"
    return Content.assemble(
        ("▸ " if here else "  ", "bold $accent"),
        (fit(one_line(checkpoint.name, 64), room), "bold reverse" if here else tone),
        (f"  {step:<11}", tone if checkpoint.damaged else ""),
        (f"{ago(now - checkpoint.at):>8}{checkpoint.bytes / 1e6:8.1f} MB", "$muted"),
        (note, "$faint"),
    )
