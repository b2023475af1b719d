"""The lists of the overview: alerts and newest groups, each with a cursor."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from console.models.alerts import alerts_by_urgency
from console.screens.overview.text import alert_lines, group_line, head_line, hint_lines
from console.session.app_state import Session
from console.text.lines import Line
from console.text.sections import HEADING
from console.text.server_color import server_colors
from console.widgets.item_list import ItemList, ListItem
from console.widgets.section import TALL
from core.events import AlertRaised

SHOWN = 50
"""Most groups; the cursor scrolls to those that do not fit."""


class AlertList(ItemList):
    """The alerts, the worst first; the cursor is shown only while the list has the focus."""

    HELP = (
        "Enter opens exactly the groups the alert names, else the screen on which it is acted on. "
        "d dismisses it until its cause has gone."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "open",
            "Open",
            show=False,
            id="overview.alert",
            tooltip="The groups the alert names, or the screen on which it is acted on",
        ),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._raised: dict[str, AlertRaised] = {}

    def paint_alerts(self, session: Session) -> None:
        """List the alerts of the session; without any, the list takes no focus."""
        self._raised = raised = {alert.key: alert for alert in alerts_by_urgency(session)}
        tall = self.app.size.height >= TALL

        def items(width: int) -> list[ListItem]:
            if self.framed and not raised:
                return [ListItem("", ((("none", "$muted"),),))]
            return [
                ListItem(alert.key, alert_lines(session, alert, width, tall or not place))
                for place, alert in enumerate(raised.values())
            ]

        count = f"  {len(raised)}" if raised else "" if self.framed else "  none"
        self.show_title((("ALERTS", HEADING), (count, "$muted")))
        self.show_items(tuple(items(self.scrollable_content_region.width)), items)
        self.can_focus = bool(raised)
        if self.has_focus and not raised:
            self.screen.focus_next()

    @property
    def chosen(self) -> AlertRaised | None:
        """The alert under the cursor; the first one while the list has no focus."""
        first = next(iter(self._raised.values()), None)
        return self._raised.get(self.cursor, first) if self.has_focus else first

    def row(self, y: int) -> tuple[Line, str]:
        line, extra = super().row(y)
        return line, extra if self.has_focus else ""


class RecentGroups(ItemList):
    """The newest groups; the cursor is shown only while the list has the focus."""

    HELP = (
        "Enter or a second click opens the group under the cursor. The cursor follows the "
        "newest until it is moved; Home returns to the newest."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "open",
            "Open",
            show=False,
            id="overview.open",
            tooltip="The candidates of the group under the cursor",
        ),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, newest_first=True)

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

    def row(self, y: int) -> tuple[Line, str]:
        line, extra = super().row(y)
        return line, extra if self.has_focus else ""

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
