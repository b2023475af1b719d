"""Try screen: the newest answer to a prompt beside those of earlier steps."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from ajet_swarm.common.text import one_line
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.text.lines import Line
from console.text.server_color import server_color
from console.views.probes import answers, columns, compared, list_head, list_row, newest_first
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from core.state import TEXT_CAP, Probe, Server

WRITING = frozenset({"again", "cancel", "prompt", "server"})


class ProbeList(ItemList):
    """One line for each prompt; the page keys scroll the answers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "screen.scroll_answers(-10)", "Page up", show=False),
        Binding("pagedown,space", "screen.scroll_answers(10)", "Page down", show=False),
        Binding("enter", "open", "Group", tooltip="The whole answer, episode and reward parts"),
    ]


class ProbesScreen(ConsoleScreen):
    """Sends prompts to the policy and lists the answers."""

    area: ClassVar[str] = "Try"
    help_text: ClassVar[str] = (
        "A prompt is sent as one eval episode: the current policy answers it, the automatic reward "
        "is shown if there is one, and nothing is trained on. The answer is shown beside earlier "
        "ones to the same prompt, else beside the newest ones, each under its global step. The "
        "journal keeps all of them; the newest 50 are listed. A try waits while the engine syncs; "
        "x cancels it and returns its episode."
    )
    AUTO_FOCUS: ClassVar[str | None] = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p,slash", "prompt", "Prompt", key_display="p", id="try.prompt"),
        Binding(
            "r",
            "again",
            "Ask again",
            id="try.again",
            tooltip="Send the prompt under the cursor again",
        ),
        Binding(
            "x", "cancel", "Cancel", id="engine.try_stop", tooltip="Return its episode to the pool"
        ),
        Binding("s", "server", "Server", id="try.server", tooltip="Send to another swarm server"),
        Binding("c", "copy", "Copy", id="try.copy", tooltip="Copy the answer under the cursor"),
        Binding("escape", "leave", "Back", id="try.leave"),
    ]

    def __init__(self, server: str | None = None) -> None:
        super().__init__()
        self._server = server or ""
        self._newest = ""

    @property
    def chosen(self) -> Probe | None:
        """The prompt under the cursor."""
        name = self.query_one(ProbeList).cursor
        return next((try_ for try_ in self.session.state.tries if try_.try_id == name), None)

    @property
    def target_group(self) -> str | None:
        """The group of the prompt under the cursor."""
        return self.chosen.group_id if self.is_mounted and self.chosen is not None else None

    @property
    def target_server(self) -> str | None:
        """The server for the next prompt."""
        server = self._next_server()
        return server.name if server is not None else None

    def _next_server(self) -> Server | None:
        servers = self.session.state.servers
        return servers.get(self._server) or next(iter(servers.values()), None)

    def compose_body(self) -> Iterable[Widget]:
        with Horizontal(id="try-row"):
            yield TextPane(id="try-where")
            yield Input(
                compact=True, placeholder="Prompt for the policy; Enter sends it", id="try-prompt"
            )
        yield ProbeList(id="try-list")
        yield TextPane(id="try-answers")

    def on_mount(self) -> None:
        """Focus the prompt line."""
        line = self.query_one("#try-prompt", Input)
        line.disabled = not self.session.allows("engine.try")
        line.display = not line.disabled
        (self.query_one(ProbeList) if line.disabled else line).focus()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed; a new try gets the cursor."""
        if dirty.isdisjoint({"*", "tries", "clock", "servers", "groups", "link"}):
            return
        self._paint()
        if not dirty.isdisjoint({"*", "tries", "servers"}):
            self.refresh_bindings()

    def _paint(self) -> None:
        state, now = self.session.state, self.session.as_of
        self.query_one("#try-where", TextPane).show_lines([self._where()])
        table = self.query_one(ProbeList)
        tries = newest_first(state)

        def rows(width: int) -> list[ListItem]:
            return [ListItem(try_.try_id, (list_row(try_, state, now, width),)) for try_ in tries]

        table.show_head("head", list_head)
        table.show_items(tuple(list_row(try_, state, now, 400) for try_ in tries), rows)
        newest = tries[0].try_id if tries else ""
        if tries and not table.keys and self.is_current:  # it has no size yet
            self.call_after_refresh(self._paint)
        elif newest != self._newest:
            self._newest = newest
            table.action_edge(0)
        self._paint_answers()

    def _where(self) -> Line:
        if not self.session.allows("engine.try"):
            return (("view only: no prompts can be sent", "$muted"),)
        server = self._next_server()
        name = one_line(server.name, 20) if server is not None else "no server"
        color = server_color(self.session.state, server.name if server is not None else "")
        return (("ask ", "$muted"), (f"{name} ", f"bold {color}"))

    def _paint_answers(self) -> None:
        state, now, name = self.session.state, self.session.as_of, self.query_one(ProbeList).cursor
        pane = self.query_one("#try-answers", TextPane)

        def build(width: int) -> list[Line]:
            probes = compared(state, name, columns(width))
            if not probes and not self.session.allows("engine.try"):
                return [(("No prompt has been tried yet.", "$muted"),)]
            return answers(probes, state, now, width)

        pane.show(tuple(build(max(20, self.size.width - 4))), build)

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show other answers from their top."""
        self.query_one("#try-answers", TextPane).scroll_home(animate=False)
        self._paint_answers()
        self.refresh_bindings()

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the group of the prompt."""
        if (chosen := self.chosen) is not None:
            self.host.push_screen(GroupScreen(chosen.group_id))

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect on the prompt under the cursor."""
        if action in WRITING and not self.session.allows("engine.try"):
            return False
        if not self.is_mounted:
            return super().check_action(action, parameters)
        chosen = self.chosen
        if action == "prompt":
            return not self.query_one("#try-prompt", Input).has_focus
        if action == "cancel":
            return chosen is not None and not chosen.over
        if action == "again":
            return chosen is not None
        if action == "copy":
            return chosen is not None and bool(chosen.text or chosen.tool_calls)
        if action == "server":
            return len(self.session.state.servers) > 1
        return super().check_action(action, parameters)

    def on_descendant_focus(self) -> None:
        """Refresh the keys for another focus."""
        self.refresh_bindings()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the prompt."""
        event.stop()
        if event.value.strip():
            self._start_sending(event.value, self.target_server)
            event.input.value = ""
            self.set_focus(self.query_one(ProbeList))

    def _start_sending(self, prompt: str, server: str | None) -> None:
        self.app.run_worker(
            self._send(prompt, server), name="engine.try", group="command", exit_on_error=False
        )

    async def _send(self, prompt: str, server: str | None) -> None:
        outcome = await self.session.command("engine.try", prompt=prompt, server=server)
        if not outcome.ok:
            self.host.say(outcome.message, "error")
            line = self.query_one("#try-prompt", Input) if self.is_mounted else None
            if line is not None and not line.value:  # keep what was typed
                line.value = prompt

    def action_prompt(self) -> None:
        """Focus the prompt line."""
        self.set_focus(self.query_one("#try-prompt", Input))

    def action_again(self) -> None:
        """Send the same prompt again, to the same server."""
        chosen = self.chosen
        if chosen is None:
            return
        if chosen.prompt and len(chosen.prompt) < TEXT_CAP:
            server = (
                chosen.server if chosen.server in self.session.state.servers else self.target_server
            )
            self._start_sending(chosen.prompt, server)
        else:
            message = "This prompt was too long to be stored in full: paste it again"
            self.host.say(message, "warning")

    def action_cancel(self) -> None:
        """Cancel the prompt and give its episode back."""
        if (chosen := self.chosen) is not None:
            self.host.run_command("engine.try_stop", try_id=chosen.try_id)

    def action_server(self) -> None:
        """Switch to the next server."""
        names = list(self.session.state.servers)
        if names:
            present = self.target_server
            index = names.index(present) if present in names else -1
            self._server = names[(index + 1) % len(names)]
            self._paint()

    def action_copy(self) -> None:
        """Copy the answer under the cursor."""
        if (chosen := self.chosen) is not None:
            self.host.copy(chosen.text or chosen.tool_calls, "Copied the answer")

    def action_scroll_answers(self, rows: int) -> None:
        """Scroll the answers."""
        self.query_one("#try-answers", TextPane).scroll_relative(
            y=rows, animate=False, immediate=True
        )

    def action_leave(self) -> None:
        """Leave the prompt line, then the screen."""
        line = self.query_one("#try-prompt", Input)
        if line.has_focus and self.session.state.tries:
            self.set_focus(self.query_one(ProbeList))
        else:
            self.dismiss()
