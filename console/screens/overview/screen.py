"""Overview screen: engine states, learning curve, alerts, newest groups."""

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.widget import Widget

from console.models.advice import context_of
from console.models.alerts import AlertAction, action_for, alerts_by_urgency
from console.models.screen_registry import SCREENS
from console.screens.base import ConsoleScreen
from console.screens.engine.inside import InsideScreen
from console.screens.first_steps.steps import is_first_start
from console.screens.first_steps.widgets import FirstSteps
from console.screens.group.screen import GroupScreen
from console.screens.open_group import open_groups
from console.screens.overview import sections
from console.screens.overview.sections import overview_line
from console.screens.overview.text import alert_lines, group_line, head_line, hint_lines
from console.screens.progress.model import has_progress
from console.session.app_state import EVERYTHING, Session
from console.text.format import server_colors
from console.text.sections import HEADING
from console.ui.keys import keys
from console.views.rewards.curve import reward_points, rewards
from console.widgets.item_list import ItemList, ListItem
from console.widgets.section import TALL, Section
from core.events import AlertRaised

_OPEN = "The group under the cursor; the groups of the alert, or its screen"
_NEED_REQUESTS = ("requests", "rate", "mock", "rewards")
"""Screens that stay empty when the proxy answers no requests."""


class OverviewScreen(ConsoleScreen):
    """The first screen; it shows the progress of the start until there is a state."""

    area: ClassVar[str] = "Overview"
    shows_texts: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "The engine's states as blocks with the time spent in each; the mean automatic reward of "
        "all groups by global step, with one standard deviation as a band; ◆ the human rating of "
        "the answer with the best automatic reward: 1 if a vote names it, 0 if a vote names "
        "another, else its score; KL to the reference policy and the share of groups without "
        "signal in the last update; whether the policy is better than its baseline on held-out "
        "prompts (8); finished groups per minute, where their time goes and how "
        "many of them carry no signal (dead). Each alert says what to do: a opens the screen "
        "where the first one is handled; Tab moves to the alerts, where Enter opens the groups of "
        "one. Up, Down and Enter open one of the newest groups; the bars are its rewards, → is the "
        "answer that the user got. Colour is never the only sign: "
        "each state, phase and verdict also has a word or a symbol."
    )
    spare_keys: ClassVar[tuple[str, ...]] = ("visit('progress')", "hide_alert")
    BINDINGS: ClassVar[list[BindingType]] = [
        # The status bar lists the screens only if there is room; this footer always does.
        *(
            Binding(
                str(place.digit),
                f"visit('{place.name}')",
                place.title,
                show=place.number < 8,  # all of them would push alerts off a narrow footer
                tooltip=place.help,
            )
            for place in SCREENS[1:]
        ),
        *keys(("a", "act", "Act", "overview.act", "The screen of the first alert, with its keys")),
        *keys(("d", "hide_alert", "Dismiss", "overview.dismiss", "Hide that alert"), shown=False),
        Binding("enter", "open_chosen", "Open", False, None, True, _OPEN, id="list.open"),
    ]

    AUTO_FOCUS = ""

    def compose_body(self) -> Iterable[Widget]:
        """Two columns when wide, one below the other when narrow."""
        yield Section(
            sections.starting, frozenset({"starting", "clock", "link", "children"}), id="starting"
        )
        with VerticalScroll(id="overview"):
            with Container(id="top"):
                with Vertical(id="left"):
                    yield Section(sections.engines, frozenset({"server", "servers", "clock"}))
                    yield Section(rewards, frozenset({"servers", "totals"}), id="curve")
                    yield Section(
                        overview_line,
                        frozenset({"progress", "servers", "clock"}),
                        id="overview-progress",
                    )
                with Vertical(id="right"):
                    yield ItemList(id="alerts", quiet=True)
                    yield Section(sections.pace, frozenset({"groups", "clock"}), id="pace")
                    yield Section(sections.mock, frozenset({"mock", "clock"}), id="mock")
            yield FirstSteps(id="first")
            yield RecentGroups(id="newest")

    def update_view(self, dirty: frozenset[str]) -> None:
        seen = self.session.seen
        overview = self.query_one("#overview")
        if overview.display != seen:
            overview.display = seen
            self.query_one("#starting").display = not seen
            dirty = EVERYTHING
        if not dirty.isdisjoint({"*", "servers", "totals"}):
            first = next(iter(self.session.state.servers.values()), None)
            self.query_one("#curve").set_class(first is None or not reward_points(first), "-bare")
        if not dirty.isdisjoint({"*", "progress"}):
            self.query_one("#overview-progress").display = has_progress(self.session.state)
        for section in self.query(Section):
            section.paint(self.session, dirty)
        if not dirty.isdisjoint({"*", "alerts", "children", "clock", "groups"}):
            self._paint_alerts()
        if self._show_first(is_first_start(self.session)):
            return
        newest = self.query_one(RecentGroups)
        if seen and not dirty.isdisjoint({"*", "groups", "clock", "servers", "proxy"}):
            newest.paint_groups(self.session)
            if self.focused is None:
                newest.focus(scroll_visible=False)
        if not dirty.isdisjoint({"*", "alerts", "children", "proxy"}):
            self.refresh_bindings()

    def _paint_alerts(self) -> None:
        """List the alerts, the worst first; without any, the list takes no focus."""
        alerts, raised = self._alerts, alerts_by_urgency(self.session)
        tall = self.app.size.height >= TALL

        def items(width: int) -> list[ListItem]:
            if alerts.framed and not raised:
                return [ListItem("", ((("none", "$muted"),),))]
            return [
                ListItem(alert.key, alert_lines(self.session, alert, width, tall or not place))
                for place, alert in enumerate(raised)
            ]

        count = f"  {len(raised)}" if raised else "" if alerts.framed else "  none"
        alerts.show_title((("ALERTS", HEADING), (count, "$muted")))
        alerts.show_items(tuple(items(alerts.scrollable_content_region.width)), items)
        alerts.can_focus = bool(raised)
        if alerts.has_focus and not raised:
            self.focus_next()

    def _show_first(self, first: bool) -> bool:
        """Show the first steps in place of empty sections before the first request."""
        overview, steps = self.query_one("#overview"), self.query_one(FirstSteps)
        if overview.has_class("-first") != first:
            overview.set_class(first, "-first")
            steps.paint(self.session, EVERYTHING)
            if not first and self.focused is steps:
                self.query_one(RecentGroups).focus(scroll_visible=False)
        if first and self.focused is None:
            steps.focus(scroll_visible=False)
        return first

    @property
    def target_group(self) -> str | None:
        """The group under the cursor; None while the cursor follows the newest."""
        newest = self.query_one(RecentGroups)
        return newest.cursor if newest.place else None

    @property
    def _alerts(self) -> ItemList:
        return self.query_one("#alerts", ItemList)

    @on(ItemList.Opened)
    def action_open_chosen(self) -> None:
        """Open one of the newest groups; of an alert the groups it names, else its screen."""
        alert, newest = self._alert, self.query_one(RecentGroups)
        if not self._alerts.has_focus and newest.cursor:
            others = [key for key in newest.keys if key]
            self.host.push_screen(GroupScreen(newest.cursor, others))
        elif alert is not None and alert.groups:
            open_groups(self.host, alert.groups)
        elif self.check_action("act", ()):
            self.action_act()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys of alerts only when there is one."""
        if action == "visit" and self.session.state.watch_only:
            return parameters[0] not in _NEED_REQUESTS
        if action == "open_chosen":
            return isinstance(self.focused, ItemList) and bool(self.focused.cursor)
        if action == "act":
            return self._alert_action() is not None and self.session.replay is None
        if action == "hide_alert":
            return self._active_alert() is not None and not self.session.read_only
        return super().check_action(action, parameters)

    def action_visit(self, name: str) -> None:
        """Show another screen."""
        self.host.action_go(name)

    @property
    def _alert(self) -> AlertRaised | None:
        """The alert under the cursor while the list has the focus, else the first."""
        raised, alerts = alerts_by_urgency(self.session), self._alerts
        chosen = (alert for alert in raised if alerts.has_focus and alert.key == alerts.cursor)
        return next(chosen, next(iter(raised), None))

    def _alert_action(self) -> AlertAction | None:
        if (alert := self._alert) is None:
            return None
        return action_for(alert, self.host.shown_screens, context_of(self.session))

    def _active_alert(self) -> AlertRaised | None:
        alert = self._alert
        return alert if alert is not None and alert.key in self.session.state.alerts else None

    def action_act(self) -> None:
        """Open the screen where an alert is handled, and show the key."""
        alert, action = self._alert, self._alert_action()
        if alert is None:
            return
        told = action.effect if action is not None else ""
        if alert.groups and (action is None or action.screen.name == "requests"):
            open_groups(self.host, alert.groups)
        elif action is not None:
            self.host.action_go(action.screen.name)
            if action.server:
                self.host.push_screen(InsideScreen(action.server))
                return
            if action.keys:  # the keys of its front page; another page may be open on it
                self.host.action_go(action.screen.name)
                told = f"{action.keys}: {action.effect}"
        if told:
            self.host.say(told)

    def action_hide_alert(self) -> None:
        """Hide the alert."""
        alert = self._active_alert()
        if alert is not None:
            self.host.run_command("alert.dismiss", key=alert.key)


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
