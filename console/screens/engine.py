"""Each swarm server: state, pool, steps; start, stop, restart. The processes of this home."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from console.models.available_commands import AvailableCommand, available_commands, is_available
from console.models.consequences import loss
from console.screens.base import ConsoleScreen
from console.screens.job import JobScreen
from console.screens.run_command import run_available
from console.screens.server_detail import ServerDetailScreen
from console.session.app_state import EVERYTHING, Session
from console.text.sections import Room
from console.views.engine import no_server, processes, server_panel
from console.widgets.checkpoints import CheckpointPanel
from console.widgets.section import Section
from core.commands import COMMANDS

ANYWHERE = ("engine.resume", "engine.save")
"""Commands about checkpoints whose keys work wherever the focus is."""
ELSEWHERE = {
    ("order", "engine.start", "hand"),
    ("restart", "engine"),
    ("restart", "proxy"),
}
"""Actions without a key while the list of checkpoints has the focus."""
KEPT = (*ANYWHERE, "engine.restore", "engine.prune", "engine.reset")


class ServerPanel(Section, can_focus=True):
    """One server; the keys apply to the focused one."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(self._panel, frozenset({"server", "servers", "clock"}))

    def _panel(self, session: Session, room: Room) -> Content:
        server = session.state.servers.get(self.server)
        return server_panel(server, session, room) if server is not None else Content("")


class EngineScreen(ConsoleScreen):
    """Servers below each other, the processes at the end."""

    area: ClassVar[str] = "Engine"
    help_text: ClassVar[str] = (
        "One panel for each swarm server; Tab goes to the next; the keys are about that one. "
        "Start sends the job and starts the engine. Stop throws the present step's samples away, "
        "for every client of the server: AgentJet's control routes ask for no key, so look at the "
        "clients first. Restart ends the embedded engine's process and starts it again from its "
        "last update. A boot that takes more than a minute has probably failed: stop it, read the "
        "log, start it again.\n"
        "The table: automatic rewards of the groups from here (human: what ratings gave the answer "
        "the automatic rewards put first), then what the update made of the batch: KL to the "
        "reference policy, share of groups without signal (no sig), share of clipped tokens, "
        "entropy, tokens an answer (length), norm of the gradient; took: seconds since the update "
        "before, sync: seconds without claims, train: of these, training.\n"
        "Checkpoints: w saves one at any time. Tab goes to their list, there b goes back to the "
        "one under the cursor, z to the base weights, d deletes older ones. An engine that runs is "
        "stopped for it and continues from there. c resumes an engine that is OFFLINE with its job."
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
            tooltip="Start with the job for rating by hand: one task a step",
        ),
        Binding(
            "k",
            "order('engine.stop')",
            "Stop",
            id="engine.stop",
            tooltip="Asks first: it names what is lost",
        ),
        Binding(
            "e",
            "job",
            "Job",
            id="engine.job",
            tooltip="What it is started with: see, change, save, apply",
        ),
        Binding(
            "n",
            "order('engine.cancel')",
            "Cancel",
            id="engine.cancel",
            tooltip="End what is being done to the engine at its next safe place",
        ),
        Binding(
            "i",
            "inside",
            "Inside",
            id="engine.inside",
            tooltip="Claimed episodes with idle time and abort; clients, tasks, rewards, its log",
        ),
        Binding(
            "S",
            "everywhere('engine.start')",
            "Start all",
            id="engine.start_all",
            tooltip="Every server that is OFFLINE, each with its own job",
        ),
        Binding(
            "K",
            "everywhere('engine.stop')",
            "Stop all",
            id="engine.stop_all",
            tooltip="Asks once and names what each would lose",
        ),
        Binding(
            "r",
            "restart('engine')",
            "Restart",
            id="engine.restart_process",
            tooltip="The process of the embedded engine again, from its last update",
        ),
        Binding(
            "p",
            "restart('proxy')",
            "Restart proxy",
            id="proxy.restart",
            tooltip="The fake vLLM again; requests in flight are finished first",
        ),
        Binding(
            "c",
            "kept('engine.resume')",
            "Resume",
            id="engine.resume",
            tooltip="Start it again with the job it has, from what is saved",
        ),
        Binding(
            "w",
            "kept('engine.save')",
            "Save",
            id="engine.save",
            tooltip="Save the policy as it is now under a name",
        ),
        Binding(
            "b,enter",
            "kept('engine.restore')",
            "Restore",
            key_display="b",
            id="engine.restore",
            tooltip="Make this checkpoint the policy to continue from; asks first",
        ),
        Binding(
            "d",
            "kept('engine.prune')",
            "Prune",
            id="engine.prune",
            tooltip="Delete all but the newest named checkpoints; asks how many, then again",
        ),
        Binding(
            "z",
            "kept('engine.reset')",
            "Reset to base",
            id="engine.reset",
            tooltip="Base weights, step 0; asks first",
        ),
        Binding("j,down", "app.focus_next", "Next", show=False),
        Binding("up", "app.focus_previous", "Previous", show=False),
    ]

    _possible: tuple[bool, ...] = ()

    @property
    def target_server(self) -> str | None:
        """Server of the focused panel, else the first."""
        if isinstance(self.focused, ServerPanel | CheckpointPanel):
            return self.focused.server
        return next(iter(self.session.state.servers), None)

    def compose_body(self) -> Iterable[Widget]:
        """The container; panels are added with the servers."""
        with VerticalScroll(id="servers", can_focus=False):
            yield Section(no_server, frozenset({"servers", "children"}), id="no-server")
            yield Section(processes, frozenset({"children", "clock", "link"}), id="processes")

    def update_view(self, dirty: frozenset[str]) -> None:
        """Add panels for new servers, remove those of servers that are gone, paint the others."""
        if not dirty.isdisjoint({"*", "servers"}):
            self.query_one("#no-server").display = not self.session.state.servers
            self._match_panels()
        if not dirty.isdisjoint({"*", "children"}):
            self._place_processes()
        for section in self.query(Section):
            section.paint(self.session, dirty)
        possible_now = tuple(
            bool(self.check_action(*action))
            for action in (
                ("order", ("engine.start",)),
                ("order", ("engine.stop",)),
                ("order", ("engine.cancel",)),
                ("everywhere", ("engine.start",)),
                ("everywhere", ("engine.stop",)),
                *(("kept", (name,)) for name in KEPT),
                ("restart", ("engine",)),
                ("restart", ("proxy",)),
            )
        )
        if possible_now != self._possible:
            self._possible = possible_now
            self.refresh_bindings()

    def _place_processes(self) -> None:
        """Move the processes above the servers while one has ended unasked.

        Then the key that starts it again leads the footer.
        """
        fallen = [f"restart({one.role!r})" for one in self.session.crashed]
        words = dict.fromkeys(fallen, "Resume")
        if words != self.footer_words:
            self.first_keys, self.footer_words = tuple(fallen), words
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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now; in the list of checkpoints those that apply to it."""
        if (action, *parameters) in ELSEWHERE and isinstance(self.focused, CheckpointPanel):
            return False
        if action == "everywhere":
            return self._for_all(str(parameters[0])) is not None
        if action in ("job", "inside"):
            server = self.session.state.servers.get(self.target_server or "")
            return server is not None and server.state != "OBSERVING"
        if action == "order":
            return is_available(self.session, str(parameters[0]), **self._args(*parameters[1:]))
        if action == "kept":
            return self._kept(str(parameters[0])) is not None
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
        return next((one for one in commands if one.command == name and one.servers), None)

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

    def _kept(self, name: str) -> AvailableCommand | None:
        """Return the command about checkpoints that a key sends now; None when there is none."""
        panel = self.focused if isinstance(self.focused, CheckpointPanel) else None
        if panel is None and name not in ANYWHERE:
            return None
        commands = [
            one
            for one in available_commands(self.session, None, self.target_server)
            if one.command == name
        ]
        if not commands:
            return None
        if name != "engine.restore" or panel is None:
            return commands[0]
        chosen = panel.chosen
        if chosen is None or chosen.damaged:
            return None
        return replace(commands[0], args={**commands[0].args, "name": chosen.name}, ask="")

    def action_kept(self, name: str) -> None:
        """Save, resume, restore, prune: ask for what is missing, then confirm the loss."""
        offer = self._kept(name)
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
            self._asked(name, args), name=name, group="command", exit_on_error=False
        )

    async def _asked(self, name: str, args: dict[str, Any]) -> None:
        title = COMMANDS[name].title
        verb = title.partition(": ")[2].partition(" ")[0]
        if await self.host.confirm(title, loss(self.session, name, args), verb):
            await self.host.order(name, **args)
