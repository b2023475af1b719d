"""List of the alerts on the overview, with a cursor; Enter opens the subject of an alert."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from console.models.alerts import alerts_by_urgency
from console.session.app_state import Session
from console.text.sections import Room
from console.views.overview import alerts
from console.widgets.section import Section
from core.events import AlertRaised


class AlertList(Section, can_focus=True):
    """List of alerts; focusable only if it has any. The cursor follows its alert."""

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
        """The operator pressed Enter on an alert or clicked it."""

        def __init__(self, alert: AlertRaised) -> None:
            super().__init__()
            self.alert = alert

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(
            self._build_alerts, frozenset({"alerts", "children", "clock", "groups"}), id=id
        )
        self._key = ""
        self.can_focus = False

    def _build_alerts(self, session: Session, room: Room) -> Content:
        chosen = self.chosen
        return alerts(session, room, chosen.key if chosen is not None and self.has_focus else "")

    def paint(self, session: Session, dirty: frozenset[str]) -> None:
        """Repaint if a section of the state that it shows has changed."""
        super().paint(session, dirty)
        self.can_focus = bool(alerts_by_urgency(session))
        if self.has_focus and not self.can_focus:
            self.screen.focus_next()

    @property
    def chosen(self) -> AlertRaised | None:
        """The alert under the cursor; the first one while the list has no focus."""
        alerts = self._alerts()
        same = next((alert for alert in alerts if alert.key == self._key), None)
        return (same if self.has_focus else None) or next(iter(alerts), None)

    def _alerts(self) -> list[AlertRaised]:
        return alerts_by_urgency(self._session) if self._session is not None else []

    def on_focus(self) -> None:
        """Show the cursor."""
        self.repaint()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.repaint()

    def action_move(self, by: int) -> None:
        """Move the cursor by so many alerts."""
        alerts, chosen = self._alerts(), self.chosen
        if chosen is not None:
            index = max(0, min(alerts.index(chosen) + by, len(alerts) - 1))
            self._key = alerts[index].key
            self.repaint()

    def action_edge(self, index: int) -> None:
        """Move the cursor to the first (0) or the last (-1) alert."""
        if alerts := self._alerts():
            self._key = alerts[index].key
            self.repaint()

    def action_open(self) -> None:
        """Open the subject of the alert under the cursor."""
        if (chosen := self.chosen) is not None:
            self.post_message(self.Opened(chosen))
