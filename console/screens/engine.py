"""Engine screen: state, pool and steps of each swarm server; start, stop, restart."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from ajet_swarm.common.errors import AjetError
from console.models.available_commands import AvailableCommand, available_commands, is_available
from console.screens.base import ConsoleScreen
from console.screens.job import JobScreen
from console.screens.run_command import run_available
from console.screens.server_detail import ServerDetailScreen
from console.session.app_state import EVERYTHING, Session
from console.session.command_plans import consequences
from console.text.sections import Room
from console.views.engine import no_server, processes, server_panel
from console.widgets.checkpoints import CheckpointPanel
from console.widgets.section import Section
from core.commands import COMMANDS
from core.control_payloads import HardwareFacts

READ_SECONDS = 2.0
"""Seconds between two readings of the devices."""
ANYWHERE = ("engine.resume", "engine.save")
"""Checkpoint commands whose keys work anywhere on the screen."""
NOT_IN_CHECKPOINTS = {
    ("order", "engine.start", "hand"),
    ("restart", "engine"),
    ("restart", "proxy"),
}
"""Actions that are unavailable while a checkpoint list has the focus."""
CHECKPOINT_COMMANDS = (*ANYWHERE, "engine.restore", "engine.prune", "engine.reset")


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


class EngineScreen(ConsoleScreen):
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
        "Checkpoints: w saves one at any time. Tab goes to their list; there b restores the one "
        "under the cursor, z the base weights, d deletes older ones. A running engine is stopped "
        "first and then continues from there. c resumes an OFFLINE engine with its job."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ServerPanel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "s",
            "order('engine.start')",
            "Start",
            id="engine.start",
            tooltip="Send the default job and start the engine",
        ),
        Binding(
            "h",
            "order('engine.start', 'hand')",
            "For rating",
            id="engine.start_hand",
            tooltip="Start with the job for rating by hand: few tasks a step",
        ),
        Binding(
            "k",
            "order('engine.stop')",
            "Stop",
            id="engine.stop",
            tooltip="Asks first and lists what is lost",
        ),
        Binding(
            "e",
            "job",
            "Job",
            id="engine.job",
            tooltip="Show, change, save or apply the job it starts with",
        ),
        Binding(
            "n",
            "order('engine.cancel')",
            "Cancel",
            id="engine.cancel",
            tooltip="Cancel the running operation at its next safe point",
        ),
        Binding(
            "i",
            "inside",
            "Inside",
            id="engine.inside",
            tooltip="Claimed episodes with idle time and abort; clients, tasks, rewards, log",
        ),
        Binding(
            "S",
            "everywhere('engine.start')",
            "Start all",
            id="engine.start_all",
            tooltip="Every OFFLINE server, each with its own job",
        ),
        Binding(
            "K",
            "everywhere('engine.stop')",
            "Stop all",
            id="engine.stop_all",
            tooltip="Asks once and lists what each would lose",
        ),
        Binding(
            "r",
            "restart('engine')",
            "Restart",
            id="engine.restart_process",
            tooltip="Restart the embedded engine from its last update",
        ),
        Binding(
            "p",
            "restart('proxy')",
            "Restart proxy",
            id="proxy.restart",
            tooltip="Restart the fake vLLM; requests in flight finish first",
        ),
        Binding(
            "c",
            "checkpoint('engine.resume')",
            "Resume",
            id="engine.resume",
            tooltip="Start it with its job from the saved checkpoint",
        ),
        Binding(
            "w",
            "checkpoint('engine.save')",
            "Save",
            id="engine.save",
            tooltip="Save the current policy under a name",
        ),
        Binding(
            "b,enter",
            "checkpoint('engine.restore')",
            "Restore",
            key_display="b",
            id="engine.restore",
            tooltip="Continue from this checkpoint; asks first",
        ),
        Binding(
            "d",
            "checkpoint('engine.prune')",
            "Prune",
            id="engine.prune",
            tooltip="Delete all but the newest named checkpoints; asks how many, then again",
        ),
        Binding(
            "z",
            "checkpoint('engine.reset')",
            "Reset to base",
            id="engine.reset",
            tooltip="Base weights, step 0; asks first",
        ),
        Binding("j,down", "app.focus_next", "Next", show=False),
        Binding("up", "app.focus_previous", "Previous", show=False),
    ]

    _key_states: tuple[bool, ...] = ()

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

    def on_mount(self) -> None:
        """Read the devices while the screen is in front."""
        self.set_interval(READ_SECONDS, self._read)

    def _read(self) -> None:
        if self.is_current and self.session.lost_at is None:
            self._fetch()

    @work(group="look", exclusive=True, exit_on_error=False)
    async def _fetch(self) -> None:
        """Read what the policy of each embedded engine runs on."""
        for panel in list(self.query(ServerPanel)):
            server = self.session.state.servers.get(panel.server)
            if server is None or server.checkpoints is None or server.lost:
                continue
            try:
                details = await self.session.server_details(panel.server)
            except AjetError:
                continue  # the panel shows why the server does not answer
            if panel.is_mounted and details.hardware != panel.hardware:
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
        key_states = tuple(
            bool(self.check_action(*action))
            for action in (
                ("order", ("engine.start",)),
                ("order", ("engine.stop",)),
                ("order", ("engine.cancel",)),
                ("everywhere", ("engine.start",)),
                ("everywhere", ("engine.stop",)),
                *(("checkpoint", (name,)) for name in CHECKPOINT_COMMANDS),
                ("restart", ("engine",)),
                ("restart", ("proxy",)),
            )
        )
        if key_states != self._key_states:
            self._key_states = key_states
            self.refresh_bindings()

    def _place_processes(self) -> None:
        """Move the processes above the servers after a crash.

        The key that restarts the crashed process then comes first in the footer.
        """
        crashed = [f"restart({child.role!r})" for child in self.session.crashed]
        words = dict.fromkeys(crashed, "Resume")
        if words != self.footer_words:
            self.first_keys, self.footer_words = tuple(crashed), words
            self.refresh_bindings()
        frame, section = self.query_one("#servers"), self.query_one("#processes")
        first = bool(self.session.crashed)
        if first == (frame.children[0] is section):
            return
        if first:
            frame.move_child(section, before=0)
            frame.scroll_home(animate=False)
        elif len(frame.children) > 1:
            frame.move_child(section, after=len(frame.children) - 1)

    def _match_panels(self) -> None:
        servers = self.session.state.servers
        known = {panel.server for panel in self.query(ServerPanel)}
        for panel in (*self.query(ServerPanel), *self.query(CheckpointPanel)):
            if panel.server not in servers:
                panel.remove()
        new = [
            panel
            for name in servers
            if name not in known
            for panel in (ServerPanel(name), CheckpointPanel(name))
        ]
        if new:
            frame = self.query_one("#servers")
            if frame.children[0].id == "processes" and len(frame.children) > 1:
                frame.mount(*new)
            else:
                frame.mount(*new, before="#processes")
            self.call_after_refresh(self._first_paint)

    def _first_paint(self) -> None:
        for section in (*self.query(ServerPanel), *self.query(CheckpointPanel)):
            section.paint(self.session, EVERYTHING)
        if self.focused is None:
            panels = self.query(ServerPanel)
            if panels:
                panels.first().focus()
        self._read()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now; in the list of checkpoints those that apply to it."""
        if (action, *parameters) in NOT_IN_CHECKPOINTS and isinstance(
            self.focused, CheckpointPanel
        ):
            return False
        if action == "everywhere":
            return self._for_all(str(parameters[0])) is not None
        if action in ("job", "inside"):
            server = self.session.state.servers.get(self.target_server or "")
            return server is not None and server.state != "OBSERVING"
        if action == "order":
            return is_available(self.session, str(parameters[0]), **self._args(*parameters[1:]))
        if action == "checkpoint":
            return self._checkpoint_command(str(parameters[0])) is not None
        if action == "restart":
            return parameters[0] in self.session.children and not self.session.read_only
        return super().check_action(action, parameters)

    def action_job(self) -> None:
        """Open the job of the selected server."""
        if (name := self.target_server) is not None:
            self.app.push_screen(JobScreen(name))

    def action_inside(self) -> None:
        """Open the episodes of the selected server."""
        if (name := self.target_server) is not None:
            self.app.push_screen(ServerDetailScreen(name))

    def _for_all(self, name: str) -> AvailableCommand | None:
        commands = available_commands(self.session, None, None)
        return next(
            (command for command in commands if command.command == name and command.servers), None
        )

    def action_everywhere(self, name: str) -> None:
        """Send the same command to every server it applies to."""
        if (offer := self._for_all(name)) is not None:
            run_available(self.host, offer)

    def _args(self, preset: object = None) -> dict[str, Any]:
        args: dict[str, Any] = {"server": self.target_server}
        return {**args, "preset": preset} if preset else args

    def action_order(self, name: str, preset: str | None = None) -> None:
        """Start or stop the engine of the selected server."""
        args = self._args(preset)
        if COMMANDS[name].danger:
            self._ask_first(name, **args)
        else:
            self.host.run_command(name, **args)

    def _checkpoint_command(self, name: str) -> AvailableCommand | None:
        """Return the checkpoint command that a key sends now; None when there is none."""
        panel = self.focused if isinstance(self.focused, CheckpointPanel) else None
        if panel is None and name not in ANYWHERE:
            return None
        commands = [
            command
            for command in available_commands(self.session, None, self.target_server)
            if command.command == name
        ]
        if not commands:
            return None
        if name != "engine.restore" or panel is None:
            return commands[0]
        chosen = panel.chosen
        if chosen is None or chosen.damaged:
            return None
        return replace(commands[0], args={**commands[0].args, "name": chosen.name}, ask="")

    def action_checkpoint(self, name: str) -> None:
        """Save, resume, restore, prune: ask for what is missing, then confirm the loss."""
        offer = self._checkpoint_command(name)
        if offer is not None:
            run_available(self.host, offer)

    def action_restart(self, role: str) -> None:
        """Restart a process; ask while it is running."""
        name = {"engine": "engine.restart_process", "proxy": "proxy.restart"}[role]
        child = self.session.children.get(role)
        if child is not None and child.pid is not None:
            self._ask_first(name)
        else:
            self.host.run_command(name)

    def _ask_first(self, name: str, /, **args: Any) -> None:
        self.app.run_worker(
            self._confirm_and_send(name, args), name=name, group="command", exit_on_error=False
        )

    async def _confirm_and_send(self, name: str, args: dict[str, Any]) -> None:
        title = COMMANDS[name].title
        verb = title.partition(": ")[2].partition(" ")[0]
        body = consequences(self.session, name, **args)
        if await self.host.confirm(title, body, verb):
            await self.host.send_command(name, **args)
