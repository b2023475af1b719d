"""Overview screen: engine states, learning curve, alerts, newest groups."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.models.alerts import AlertAction, action_for, alerts_by_urgency
from console.models.screen_registry import SCREENS
from console.screens.base import ConsoleScreen
from console.screens.engine.inside import InsideScreen
from console.screens.first_steps.steps import is_first_start
from console.screens.first_steps.widgets import FirstSteps
from console.screens.group.screen import GroupScreen
from console.screens.open_group import open_groups
from console.screens.progress.model import has_progress
from console.screens.progress.summary import overview_line
from console.session.app_state import EVERYTHING, Session
from console.text.format import UNKNOWN, elapsed
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped
from console.views import overview as parts
from console.views.rewards.curve import reward_points, rewards
from console.widgets.alert_list import AlertList
from console.widgets.recent_groups import RecentGroups
from console.widgets.section import Section
from core.events import AlertRaised

_SIGNS = {
    "waiting": ("·", "$muted"),
    "doing": ("▸", "$engine-booting"),
    "done": ("✔", "$engine-rolling"),
    "failed": ("✖", "$engine-lost"),
}


_NEED_REQUESTS = ("requests", "rate", "mock", "rewards")
"""Screens that stay empty when the proxy answers no requests."""


def starting(session: Session, room: Room) -> Content:
    """Return what is starting, and its progress."""
    shown = [heading("STARTING"), Content("")]
    for step in session.steps.values():
        sign, color = _SIGNS[step.phase]
        took = (
            UNKNOWN if step.began is None else elapsed((step.ended or session.now()) - step.began)
        )
        shown.append(
            Content.assemble(
                (f"{sign} ", f"bold {color}"),
                (f"{one_line(step.title, 60):<28}", "" if step.phase != "waiting" else "$muted"),
                (f"{'' if step.phase == 'waiting' else took:>6}  ", "$muted"),
                (one_line(step.detail, 200), "$muted") if step.phase != "failed" else "",
            )
        )
        if step.phase == "failed":
            shown += _indented(step.detail, color, room.width)
        for line in step.lines:
            shown += _indented(line, "$muted", room.width)
    if session.trouble:
        shown.append(Content(""))
        shown += [
            Content.styled(line, "$engine-booting") for line in _wrapped(session.trouble, room)
        ]
    if session.failed_steps:
        shown.append(Content(""))
        shown += [Content(line) for line in _wrapped(recovery_hint(session), room)]
    return lines(*shown)


def recovery_hint(session: Session) -> str:
    """Return what the operator can do after a failed start."""
    keys = {"engine": "r", "proxy": "p"}
    restarts = [
        f"{key} starts the {role} again"
        for role, key in keys.items()
        if role in session.children and session.steps.get(role) in session.failed_steps
    ]
    first = f"Press 5, there {', '.join(restarts)}. " if restarts and not session.read_only else ""
    return f"{first}Press 7 for the whole log, Ctrl+Q to leave and start with other flags"


def _indented(text: str, color: str, width: int) -> list[Content]:
    return [
        Content.styled(f"    {line}", color) for line in wrapped(one_line(text, 400), width - 4)[:6]
    ]


def _wrapped(text: str, room: Room) -> list[str]:
    return wrapped(one_line(text, 400), room.width)


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
        "one. Up, Down and Enter open one of the newest groups. Colour is never the only sign: "
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
        Binding(
            "a",
            "act",
            "Act",
            id="overview.act",
            tooltip="Open the screen that handles the first alert; its keys are beside it",
        ),
        Binding(
            "d",
            "hide_alert",
            "Dismiss",
            show=False,
            id="overview.dismiss",
            tooltip="Hide that alert",
        ),
    ]

    AUTO_FOCUS = ""

    def compose_body(self) -> Iterable[Widget]:
        """Two columns when wide, one below the other when narrow."""
        yield Section(starting, frozenset({"starting", "clock", "link", "children"}), id="starting")
        with VerticalScroll(id="overview"):
            with Container(id="top"):
                with Vertical(id="left"):
                    yield Section(parts.engines, frozenset({"server", "servers", "clock"}))
                    yield Section(rewards, frozenset({"servers", "totals"}), id="curve")
                    yield Section(
                        overview_line,
                        frozenset({"progress", "servers", "clock"}),
                        id="overview-progress",
                    )
                with Vertical(id="right"):
                    yield AlertList(id="alerts")
                    yield Section(parts.pace, frozenset({"groups", "clock"}), id="pace")
                    yield Section(parts.mock, frozenset({"mock", "clock"}), id="mock")
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
        if self._show_first(is_first_start(self.session)):
            return
        newest = self.query_one(RecentGroups)
        if seen and not dirty.isdisjoint({"*", "groups", "clock", "servers", "proxy"}):
            newest.paint_groups(self.session)
            if self.focused is None:
                newest.focus(scroll_visible=False)
        if not dirty.isdisjoint({"*", "alerts", "children", "proxy"}):
            self.refresh_bindings()

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

    def on_item_list_opened(self, event: RecentGroups.Opened) -> None:
        """Open one of the newest groups."""
        event.stop()
        newest = self.query_one(RecentGroups)
        self.host.push_screen(GroupScreen(event.key, [key for key in newest.keys if key]))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys of alerts only when there is one."""
        if action == "visit" and self.session.state.watch_only:
            return parameters[0] not in _NEED_REQUESTS
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
        """Return the alert under the cursor, else the first."""
        panel = self.query_one(AlertList)
        return (
            panel.chosen if panel.has_focus else next(iter(alerts_by_urgency(self.session)), None)
        )

    def _alert_action(self) -> AlertAction | None:
        alert = self._alert
        if alert is None:
            return None
        return action_for(alert, self.host.shown_screens, context_of(self.session))

    def _active_alert(self) -> AlertRaised | None:
        alert = self._alert
        return alert if alert is not None and alert.key in self.session.state.alerts else None

    def on_alert_list_opened(self, event: AlertList.Opened) -> None:
        """Open the groups an alert names, else the screen where it is handled."""
        event.stop()
        if event.alert.groups:
            open_groups(self.host, event.alert.groups)
        elif self.check_action("act", ()):
            self.action_act()

    def action_act(self) -> None:
        """Open the screen where an alert is handled, and show the key."""
        alert, action = self._alert, self._alert_action()
        if (
            alert is not None
            and alert.groups
            and (action is None or action.screen.name == "requests")
        ):
            open_groups(self.host, alert.groups)
            if action is not None and action.effect:
                self.host.say(action.effect)
            return
        if action is not None:
            self.host.action_go(action.screen.name)
            if action.server:
                self.host.push_screen(InsideScreen(action.server))
                return
            if action.keys:  # the keys of its front page; another page may be open on it
                self.host.action_go(action.screen.name)
            if action.keys or action.effect:
                self.host.say(f"{action.keys}: {action.effect}" if action.keys else action.effect)

    def action_hide_alert(self) -> None:
        """Hide the alert."""
        alert = self._active_alert()
        if alert is not None:
            self.host.run_command("alert.dismiss", key=alert.key)
