"""The newest groups, with a cursor."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from console.screens.overview.text import group_line, head_line, hint_lines
from console.session.app_state import Session
from console.text.server_color import server_colors
from console.widgets.item_list import ItemList, ListItem

SHOWN = 50
"""Most groups; the cursor scrolls to those that do not fit."""


class RecentGroups(ItemList):
    """The newest groups; the cursor is shown only while the list has the focus."""

    HELP = (
        "Enter or a second click opens the group under the cursor. The cursor follows the "
        "newest until it is moved; Home returns to the newest."
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", show=False, id="list.open"),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, newest_first=True, quiet=True)

    def paint_groups(self, session: Session) -> None:
        """List the newest groups of the session."""
        groups = list(session.state.groups.values())[: -SHOWN - 1 : -1]
        tones = server_colors(session.state)

        def items(width: int) -> list[ListItem]:
            lines = [(group_line(session, group, width, tones),) for group in groups]
            if not groups:
                return [ListItem("", hint_lines(session, width))]
            return [
                ListItem(group.group_id, line) for group, line in zip(groups, lines, strict=True)
            ]

        width = self.scrollable_content_region.width
        self.show_title(head_line(session, width or self.app.size.width))  # 0 before the layout
        self.show_items(tuple(items(width)), items)

    def action_move(self, by: int) -> None:
        """Move up or down; above the first line scroll the page."""
        if by < 0 and not self.place:
            self._page.scroll_relative(y=by, animate=False)
            return
        self._page.scroll_to_widget(self, animate=False)
        super().action_move(by)

    def action_edge(self, place: int) -> None:
        """Move to the newest, or to the last."""
        if not place:
            self._page.scroll_home(animate=False)
        super().action_edge(place)

    @property
    def _page(self) -> VerticalScroll:
        return self.screen.query_one("#overview", VerticalScroll)
