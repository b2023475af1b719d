"""Try screen: the newest answer to a prompt beside those of earlier steps."""

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from ajet_swarm.common.text import one_line
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.screens.progress.text import TRIES, Try, answers, columns, compared
from console.text.format import server_color
from console.text.lines import Line
from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane
from core.state import TEXT_CAP, Probe

WRITING = frozenset({"again", "cancel", "prompt", "server"})


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
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("p,slash", "prompt", "Prompt", "try.prompt", "", "p"),
        ("r", "again", "Ask again", "try.again", "Send the prompt under the cursor again"),
        ("x", "cancel", "Cancel", "engine.try_stop", "Return its episode to the pool"),
        ("s", "server", "Server", "try.server", "Send to another swarm server"),
        ("c", "copy", "Copy", "try.copy", "Copy the answer under the cursor"),
        ("escape", "leave", "Back", "try.leave"),
    )

    def __init__(self, server: str | None = None) -> None:
        super().__init__()
        self._server = server or ""
        self._newest = ""

    @property
    def chosen(self) -> Probe | None:
        """The prompt under the cursor."""
        name = self.query_one(ItemList).cursor
        return next((probe for probe in self.session.state.tries if probe.try_id == name), None)

    @property
    def target_group(self) -> str | None:
        """The group of the prompt under the cursor."""
        return self.chosen.group_id if self.is_mounted and self.chosen is not None else None

    @property
    def target_server(self) -> str | None:
        """The server for the next prompt."""
        servers = self.session.state.servers
        return self._server if self._server in servers else next(iter(servers), None)

    @property
    def _line(self) -> Input:
        return self.query_one("#try-prompt", Input)

    def compose_body(self) -> Iterable[Widget]:
        words = "Prompt for the policy; Enter sends it"
        with Horizontal(id="try-row"):
            yield TextPane(id="try-where")
            yield Input(compact=True, placeholder=words, id="try-prompt")
        opens = "Group", "The whole answer, episode and reward parts"
        yield ItemList(id="try-list", opens=opens, below="#try-answers")
        yield TextPane(id="try-answers")

    def on_mount(self) -> None:
        """Focus the prompt line."""
        line = self._line
        line.disabled = not self.session.allows("engine.try")
        line.display = not line.disabled
        (self.query_one(ItemList) if line.disabled else line).focus()

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
        table, tries = self.query_one(ItemList), state.tries[::-1]
        table.show_table(TRIES, [Try(probe, now) for probe in tries], lambda row: row.probe.try_id)
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
        name = self.target_server or "no server"
        color = server_color(self.session.state, name)
        return (("ask ", "$muted"), (f"{one_line(name, 20)} ", f"bold {color}"))

    def _paint_answers(self) -> None:
        state, now, name = self.session.state, self.session.as_of, self.query_one(ItemList).cursor
        allowed = self.session.allows("engine.try")

        def build(width: int) -> list[Line]:
            probes = compared(state, name, columns(width))
            if not probes and not allowed:
                return [(("No prompt has been tried yet.", "$muted"),)]
            return answers(probes, state, now, width)

        pane = self.query_one("#try-answers", TextPane)
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
        chosen = self.chosen if self.is_mounted else None
        works = {
            "prompt": self.is_mounted and not self._line.has_focus,
            "cancel": chosen is not None and not chosen.over,
            "again": chosen is not None,
            "copy": chosen is not None and bool(chosen.text or chosen.tool_calls),
            "server": len(self.session.state.servers) > 1,
        }
        return works.get(action, True)

    def on_descendant_focus(self) -> None:
        """Refresh the keys for another focus."""
        self.refresh_bindings()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the prompt."""
        event.stop()
        if event.value.strip():
            self._send(event.value, self.target_server)
            event.input.value = ""
            self.query_one(ItemList).focus()

    @work(group="try", exit_on_error=False)
    async def _send(self, prompt: str, server: str | None) -> None:
        outcome = await self.session.command("engine.try", prompt=prompt, server=server)
        if not outcome.ok:
            self.host.say(outcome.message, "error")
            if self.is_mounted and not self._line.value:  # keep what was typed
                self._line.value = prompt

    def action_prompt(self) -> None:
        """Focus the prompt line."""
        self._line.focus()

    def action_again(self) -> None:
        """Send the same prompt again, to the same server."""
        if (chosen := self.chosen) is None:
            return
        if chosen.prompt and len(chosen.prompt) < TEXT_CAP:
            known = chosen.server in self.session.state.servers
            self._send(chosen.prompt, chosen.server if known else self.target_server)
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
        if (present := self.target_server) is not None:
            self._server = names[(names.index(present) + 1) % len(names)]
            self._paint()

    def action_copy(self) -> None:
        """Copy the answer under the cursor."""
        if (chosen := self.chosen) is not None:
            self.host.copy(chosen.text or chosen.tool_calls, "Copied the answer")

    def action_leave(self) -> None:
        """Leave the prompt line, then the screen."""
        if self._line.has_focus and self.session.state.tries:
            self.query_one(ItemList).focus()
        else:
            self.dismiss()
