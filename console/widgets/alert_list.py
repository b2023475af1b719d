"""The alerts of the overview, with a cursor: Enter opens what an alert is about."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from console.models.alerts import by_need
from console.session.app_state import Session
from console.text.sections import Room
from console.views.overview import alerts
from console.widgets.section import Section
from core.state import Alert


class AlertList(Section, can_focus=True):
    """Takes the focus only while there are alerts; the cursor stays on its alert."""

    HELP = (
        "Enter opens exactly the groups the alert names, else the screen on which it is acted on. "
        "d dismisses it until its cause has gone."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(-1)", "Last", show=False),
        Binding(
            "enter",
            "open",
            "Open",
            show=False,
            id="overview.alert",
            tooltip="The groups the alert names, or the screen on which it is acted on",
        ),
    ]

    class Opened(Message):
        """Enter or a click on an alert."""

        def __init__(self, alert: Alert) -> None:
            super().__init__()
            self.alert = alert

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(self._build_alerts, frozenset({"alerts", "children", "clock"}), id=id)
        self._key = ""
        self.can_focus = False

    def _build_alerts(self, session: Session, room: Room) -> Content:
        chosen = self.chosen
        return alerts(session, room, chosen.key if chosen is not None and self.has_focus else "")

    def paint(self, session: Session, dirty: frozenset[str]) -> None:
        """Rebuild when one of its keys has changed."""
        super().paint(session, dirty)
        self.can_focus = bool(by_need(session))
        if self.has_focus and not self.can_focus:
            self.screen.focus_next()

    @property
    def chosen(self) -> Alert | None:
        """The alert under the cursor; without the focus the first one."""
        alerts = self._found()
        same = next((one for one in alerts if one.key == self._key), None)
        return (same if self.has_focus else None) or next(iter(alerts), None)

    def _found(self) -> list[Alert]:
        return by_need(self._session) if self._session is not None else []

    def on_focus(self) -> None:
        """Show the cursor."""
        self.repaint()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.repaint()

    def action_move(self, by: int) -> None:
        """Move up or down."""
        alerts, chosen = self._found(), self.chosen
        if chosen is not None:
            place = max(0, min(alerts.index(chosen) + by, len(alerts) - 1))
            self._key = alerts[place].key
            self.repaint()

    def action_edge(self, place: int) -> None:
        """Move to the first or the last."""
        if alerts := self._found():
            self._key = alerts[place].key
            self.repaint()

    def action_open(self) -> None:
        """Open what the alert is about."""
        if (chosen := self.chosen) is not None:
            self.post_message(self.Opened(chosen))
