"""Keys of the rating screen for the inbox and for asking again; what it shows of late votes."""

from typing import ClassVar

from textual import work
from textual.binding import BindingType

from ajet_swarm.common.errors import AjetError
from console.models.app_host import AppHost
from console.screens.rate.inbox.model import AHEAD, InboxView
from console.screens.rate.inbox.text import empty_lines, header_line
from console.screens.rate.model import RateQueue, asked_next
from console.screens.rate.voting import RateArea
from console.session.command_plans import obstacle
from console.text.lines import EMPTY, Line
from console.ui.keys import keys
from console.widgets.pane import TextPane, centred


async def ask_again(app: AppHost, view: InboxView, group_id: str) -> bool:
    """Ask the prompt of a group again; return whether a new group was opened."""
    outcome = await app.session.command("group.rerun", group_id=group_id)
    if outcome.ok:
        view.asked = str(outcome.data.get("group_id", ""))
    else:
        app.say(outcome.message, "error")
    return outcome.ok


class InboxKeys(RateArea):
    """Opens the inbox from the open groups; asks again from a group of the inbox, or while no group
    waits."""

    WRITING: ClassVar[frozenset[str]] = frozenset({"again"})
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("I", "inbox", "Inbox", "rate.inbox", "Groups that ended before their vote"),
            ("escape", "back", "Back"),
            shown=False,
        ),
        *keys(
            ("A", "again", "Ask again", "group.rerun", "The same prompt as a new group, on Rate")
        ),
    ]

    def __init__(self, queue: RateQueue) -> None:
        super().__init__(queue)
        self._view = InboxView(queue.session) if queue.late is None else queue.late.view
        self._reading = False

    def obstacle(self, action: str) -> str | None:
        if action == "inbox":
            empty = "The inbox is empty: no group ended before its vote"
            return None if self.session.state.inbox else empty
        if action == "back":
            return "" if self.queue.late is None else None
        if self.queue.late is None:
            return None if asked_next(self.queue) is not None else ""
        return obstacle("rerun", self.queue.group, self.session)

    def action_inbox(self) -> None:
        """List the inbox."""
        from console.screens.rate.inbox.screen import InboxScreen  # it opens the rating screen

        if self.queue.late is not None:
            self.action_back()
        else:
            self.host.push_screen(InboxScreen(self._view))

    def action_back(self) -> None:
        """Go back to the list."""
        self.screen.dismiss()

    def action_again(self) -> None:
        """Ask the prompt of the group on screen again, or the last one while no group waits."""
        if (group := self.queue.group or asked_next(self.queue)) is not None:
            self.ask(group.group_id)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def ask(self, group_id: str) -> None:
        """Ask the prompt of a group again, and go back to the open groups, where it opens."""
        if await ask_again(self.host, self._view, group_id):
            if self.queue.late is not None:
                self.screen.dismiss()
            else:
                self.changed()

    def paint(self) -> None:
        """Show what differs for late votes; among the open groups await one asked again."""
        queue, view = self.queue, self._view
        if queue.late is None:
            if view.asked:
                queue.next_id, view.asked = view.asked, ""
                queue.set_message("Asked again: it opens here as soon as its answers are there")
                self.changed()
            return
        width, group = max(20, self.screen.size.width), queue.group
        self._show("head", header_line(view, group, width))
        if group is None:
            reading = queue.late.is_unread(queue.next_id)
            rows = [centred(row, width, "$muted") for row in empty_lines(view, reading)]
            self._show("empty", EMPTY, *rows)
        unread = queue.late.unread(queue.next_id or queue.current)
        if unread and not self._reading:
            self._reading = True
            self._read(unread)

    def _show(self, name: str, *lines: Line) -> None:
        self.query_one(f"#rate-{name}", TextPane).show_lines(lines)

    @work(group="inbox", exit_on_error=False)
    async def _read(self, ids: list[str]) -> None:
        """Read the texts of groups, of the first one first; keep those of the newest ones."""
        read, late = self.session.read_ahead, self.queue.late
        assert late is not None
        try:
            for group_id in ids:
                group = await self.session.read_group(group_id)
                if group is not None and group.answered:
                    read[group_id] = group
                    continue
                late.gone.add(group_id)
                self.host.say(f"The answers of group {group_id} are no longer stored", "warning")
        except AjetError as error:
            self.host.say(f"The inbox cannot be read: {error}", "error")
            return  # the next change of the state reads again
        finally:
            self._reading = False
        for group_id in list(read)[: -4 * (1 + AHEAD)]:
            del read[group_id]
        self.changed()
