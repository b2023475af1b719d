"""Engine screen: state, pool and steps of each swarm server; start, stop, restart."""

from collections.abc import Iterable
from typing import Any, ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from console.models.available_commands import AvailableCommand, offered
from console.screens.engine.inside import InsideScreen
from console.screens.engine.job import JobScreen
from console.screens.engine.panel import no_server, processes
from console.screens.engine.reading import ReadingScreen
from console.screens.engine.widgets import CheckpointPanel, ServerPanel
from console.screens.run_command import run_available
from console.session.app_state import EVERYTHING
from console.ui.keys import keys
from console.widgets.section import Section

_RESTART = {"engine": "engine.restart_process", "proxy": "proxy.restart"}


class EngineScreen(ReadingScreen):
    """Servers below each other, the processes at the end."""

    area: ClassVar[str] = "Engine"
    shows_texts: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "One panel for each swarm server; Tab goes to the next; the keys act on the focused one. "
        "Start sends the job and starts the engine. Stop discards the samples of the current "
        "step for every client of the server: AgentJet's control routes need no key, so check "
        "the clients first. Restart ends the embedded engine's process and starts it again from "
        "its last update. A boot that takes more than a minute has probably failed: stop it, "
        "read the log, start it again.\n"
        "The table: automatic rewards of this console's groups (human: the ratings of the answer "
        "with the best automatic reward), then the update: KL to the reference policy, share of "
        "groups without signal (no sig), share of clipped tokens, entropy, tokens per answer "
        "(length), gradient norm; took: seconds since the previous update, sync: seconds without "
        "claims, train: seconds of training within sync.\n"
        "With the torch backend: device and number format of the weights; memory in use, and as "
        "planned for all answers at full length; tokens per second of the last batch, and of a "
        "look in progress; seconds of sampling since the last update, of that update, and of "
        "publishing its weights (sync).\n"
        "Checkpoints: Tab goes to their list and its keys. A running engine is stopped before one "
        "is restored, and then continues from there."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ServerPanel"
    reading_seconds: ClassVar[float] = 2.0
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("s", "send('engine.start')", "Start", "engine.start", "Send the default job and start"),
        ("h", "start_hand", "For rating", "engine.start_hand", "With few tasks a step"),
        ("k", "send('engine.stop')", "Stop", "engine.stop", "Asks first and lists what is lost"),
        ("e", "job", "Job", "engine.job", "Show, change, save or apply the job it starts with"),
        ("n", "send('engine.cancel')", "Cancel", "engine.cancel", "At its next safe point"),
        ("i", "inside", "Inside", "engine.inside", "Episodes with abort, clients, tasks, log"),
        ("S", "send_all('engine.start')", "Start all", "engine.start_all", "Each with its own job"),
        ("K", "send_all('engine.stop')", "Stop all", "engine.stop_all", "Asks once"),
        ("r", "restart('engine')", "Restart", _RESTART["engine"], "From its last update"),
        ("p", "restart('proxy')", "Restart proxy", _RESTART["proxy"], "Drains requests in flight"),
        ("c", "send('engine.resume')", "Resume", "engine.resume", "From the saved checkpoint"),
        ("w", "send('engine.save')", "Save", "engine.save", "The current policy under a name"),
        ("j,down", "app.focus_next", "Next"),
        ("up", "app.focus_previous", "Previous"),
    )

    @property
    def target_server(self) -> str | None:
        """Server of the focused panel, else the first."""
        if isinstance(self.focused, ServerPanel | CheckpointPanel):
            return self.focused.server
        return next(iter(self.session.state.servers), None)

    def compose_body(self) -> Iterable[Widget]:
        with VerticalScroll(id="servers", can_focus=False):
            yield Section(no_server, frozenset({"servers", "children"}), id="no-server")
            yield Section(processes, frozenset({"children", "clock", "link"}), id="processes")

    # --- painting ----------------------------------------------------------------------------

    def to_read(self) -> list[str]:
        """The embedded engines, whose policy says what it runs on."""
        servers = self.session.state.servers.values()
        return [
            server.name for server in servers if server.checkpoints is not None and not server.lost
        ]

    def paint_details(self) -> None:
        """Show what each policy runs on; after a failure the panel shows the last reading."""
        for panel in self.query(ServerPanel):
            details = self.details.get(panel.server)
            if details is not None and details.hardware != panel.hardware:
                panel.hardware = details.hardware
                panel.paint(self.session, EVERYTHING)

    def update_view(self, dirty: frozenset[str]) -> None:
        """Add panels for new servers, remove those of servers that are gone, paint the others."""
        if not dirty.isdisjoint({"*", "servers"}):
            self.query_one("#no-server").display = not self.session.state.servers
            self._match_panels()
        if not dirty.isdisjoint({"*", "children"}):
            self._place_processes()
        for section in self.query(Section):
            section.paint(self.session, dirty)
        self.refresh_bindings()

    def _place_processes(self) -> None:
        """Move the processes above the servers after a crash.

        The key that restarts the crashed process then comes first in the footer.
        """
        self.first_keys = tuple(f"restart({child.role!r})" for child in self.session.crashed)
        self.footer_words = dict.fromkeys(self.first_keys, "Resume")
        frame, section = self.query_one("#servers"), self.query_one("#processes")
        first = bool(self.first_keys)
        if first == (frame.children[0] is section):
            return
        if first:
            frame.move_child(section, before=0)
            frame.scroll_home(animate=False)
        elif len(frame.children) > 1:
            frame.move_child(section, after=len(frame.children) - 1)

    def _match_panels(self) -> None:
        servers = self.session.state.servers
        panels = [*self.query(ServerPanel), *self.query(CheckpointPanel)]
        known = {panel.server for panel in panels}
        for panel in panels:
            if panel.server not in servers:
                panel.remove()
        new = [kind(name) for name in servers if name not in known for kind in _PANELS]
        if new:
            frame = self.query_one("#servers")
            last = frame.children[0].id == "processes" and len(frame.children) > 1
            frame.mount(*new, before=None if last else "#processes")
            self.call_after_refresh(self._first_paint)

    def _first_paint(self) -> None:
        panels = self.query(ServerPanel)
        for section in (*panels, *self.query(CheckpointPanel)):
            section.paint(self.session, EVERYTHING)
        if self.focused is None and panels:
            panels.first().focus()
        self.read()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        match action:
            case "send" | "send_all":
                return self._offer(str(parameters[0]), everywhere=action == "send_all") is not None
            case "start_hand":
                return self._offer("engine.start", preset="hand") is not None
            case "job" | "inside":
                server = self.session.state.servers.get(self.target_server or "")
                return server is not None and server.state != "OBSERVING"
            case "restart":
                return parameters[0] in self.session.children and not self.session.read_only
        return super().check_action(action, parameters)

    def action_job(self) -> None:
        """Open the job of the selected server."""
        if (name := self.target_server) is not None:
            self.app.push_screen(JobScreen(name))

    def action_inside(self) -> None:
        """Open the episodes of the selected server."""
        if (name := self.target_server) is not None:
            self.app.push_screen(InsideScreen(name))

    def _offer(self, name: str, **more: Any) -> AvailableCommand | None:
        return offered(self.session, name, self.target_server, **more)

    def _run(self, offer: AvailableCommand | None) -> None:
        """Send a command; ask for what is missing, then confirm the loss."""
        if offer is not None:
            run_available(self.host, offer)

    def action_send(self, name: str) -> None:
        """Send a command to the selected server."""
        self._run(self._offer(name))

    def action_start_hand(self) -> None:
        """Start the engine with the job for rating by hand."""
        self._run(self._offer("engine.start", preset="hand"))

    def action_send_all(self, name: str) -> None:
        """Send the same command to every server it applies to."""
        self._run(self._offer(name, everywhere=True))

    def action_restart(self, role: str) -> None:
        """Restart a process; ask while it is running."""
        child = self.session.children.get(role)
        if child is not None and child.pid is not None:
            self._run(self._offer(_RESTART[role]))
        else:
            self.host.run_command(_RESTART[role])


_PANELS: tuple[type[ServerPanel | CheckpointPanel], ...] = (ServerPanel, CheckpointPanel)
