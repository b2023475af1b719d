"""The list of the inbox; Enter opens a group for a late vote."""

from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType

from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.screens.rate.inbox.keys import ask_again
from console.screens.rate.inbox.model import InboxGroups, InboxView
from console.screens.rate.inbox.text import empty_lines, table, title_line
from console.screens.rate.model import is_free, lease_name
from console.screens.rate.screen import RateScreen
from console.session.app_state import EVERYTHING
from console.session.filters import Filter, FilterError, parse
from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane, centred
from core.state import Group


class InboxScreen(ConsoleScreen):
    """The groups that ended before their vote.

    Args:
        view: Order, filter and items.
    """

    area: ClassVar[str] = "Inbox"
    help_text: ClassVar[str] = (
        "Groups that were sent, or ended, before their vote: the newest 500. A vote on them is "
        "late: it counts for your agreement with the rewards, for the share of wins and for "
        "exports, and is never sent as a reward. Enter opens one, as on Rate; one with your vote "
        "opens with its rewards. o orders by the newest, the oldest, or by how often the reward "
        "parts put answers in opposite orders (split, from 0 to 1). / filters by the terms of "
        "Requests. A asks the same prompt again: the new group opens on Rate, and its vote trains."
    )
    AUTO_FOCUS = "ItemList"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("o", "order", "Order", "inbox.order", "Newest, oldest, or largest disagreement first"),
        ("slash", "filter", "Find", "inbox.filter", "A filter, as on Requests", "/"),
        ("A", "again", "Ask again", "group.rerun", "The same prompt as a new group, on Rate"),
        ("escape,I", "leave", "Back", "inbox.leave", "Clear the filter, or go back to Rate", "Esc"),
    )

    def __init__(self, view: InboxView) -> None:
        super().__init__()
        self.view = view
        self._table = table(view)

    def compose_body(self) -> ComposeResult:
        """Title, list, the text of an empty list."""
        yield TextPane(id="inbox-title")
        yield ItemList(id="inbox-list", opens=("Rate", "Rate it, late"))
        yield TextPane(id="inbox-empty")

    @property
    def target_group(self) -> str | None:
        return self.query_one(ItemList).cursor or None

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the list; close it when a group was asked again from the screen above it."""
        if self.view.asked:
            self.dismiss()
            return
        if dirty.isdisjoint({"*", "groups"}):
            return
        view, items, rows = self.view, self.view.items(), self.query_one(ItemList)
        title, empty = self.query_one("#inbox-title", TextPane), self.query_one("#inbox-empty")
        source = (view.order, view.filter.text, [(item.group_id, item.votes) for item in items])
        title.show(repr(source), lambda width: [title_line(view, width)])
        rows.show_table(self._table, items, lambda item: item.group_id)
        empty.display = not items
        rows.display = bool(items)
        text = empty_lines(view, reading=False)
        assert isinstance(empty, TextPane)
        empty.show(text, lambda width: [centred(row, width, "$muted") for row in text])

    @on(ItemList.Opened)
    def open_item(self, event: ItemList.Opened) -> None:
        """Open a group for a late vote; one that has it, with its rewards."""
        item = self.session.state.inbox.get(event.key)
        if item is None:
            return
        group = self.view.group_of(item)
        if not self.view.needs_vote(item):
            self._open_detail(item.group_id)
        elif not is_free(self.session, group):
            self.host.say(f"{lease_name(group)} is rating this group", "warning")
        else:
            rating = RateScreen(InboxGroups(self.view))
            rating.queue.next_id = item.group_id
            self.host.push_screen(rating)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def _open_detail(self, group_id: str) -> None:
        group = self.session.group(group_id) or await self.session.read_group(group_id)

        def find(name: str) -> Group | None:
            return self.session.state.groups.get(name) or (group if name == group_id else None)

        if group is None:
            self.host.say("The answers of this group are no longer stored", "warning")
        else:
            self.host.push_screen(GroupScreen(group_id, find=find))

    # --- keys --------------------------------------------------------------------------------

    def action_order(self) -> None:
        """Take the next order."""
        self.view.turn()
        self.update_view(EVERYTHING)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_filter(self) -> None:
        """Ask for the filter."""
        label = "Words of the question and terms, as on Requests; empty lists all"
        text = await self.host.ask("Filter the inbox", label, self.view.filter.text)
        if text is None:
            return
        try:
            self.view.filter = parse(text)
        except FilterError as error:
            self.host.say(str(error), "error")
        self.update_view(EVERYTHING)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_again(self) -> None:
        """Ask the same prompt again, and go back to Rate, where it opens."""
        if (group_id := self.target_group) and await ask_again(self.host, self.view, group_id):
            self.update_view(EVERYTHING)

    def action_leave(self) -> None:
        """Clear the filter, or go back to Rate."""
        if self.view.filter:
            self.view.filter = Filter()
            self.update_view(EVERYTHING)
        else:
            self.dismiss()
