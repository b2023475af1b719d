"""What the engine does, what was learned, what needs the operator."""

from collections.abc import Iterable
from typing import ClassVar

from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget

from console.screens.base import ConsoleScreen
from console.session import EVERYTHING, Session
from console.widgets import overview_parts as parts
from console.widgets.section import Room, Section, heading, lines
from console.widgets.words import UNKNOWN, elapsed
from core.text import one_line

_SIGNS = {
    "waiting": ("·", "$muted"),
    "doing": ("▸", "$engine-booting"),
    "done": ("✔", "$engine-rolling"),
    "failed": ("✖", "$engine-lost"),
}


def starting(session: Session, room: Room) -> Content:
    """What is being started, and how far it is."""
    shown = [heading("STARTING"), Content("")]
    for step in session.steps.values():
        sign, color = _SIGNS[step.phase]
        took = (
            UNKNOWN if step.began is None else elapsed((step.ended or session.now()) - step.began)
        )
        shown.append(
            Content.assemble(
                (f"{sign} ", f"bold {color}"),
                (f"{step.title:<28}", "" if step.phase != "waiting" else "$muted"),
                (f"{'' if step.phase == 'waiting' else took:>6}  ", "$muted"),
                (one_line(step.detail, 200), color if step.phase == "failed" else "$muted"),
            )
        )
        for line in step.lines:
            shown.append(Content.styled(f"    {one_line(line, 300)}", "$muted"))
    if session.trouble:
        shown += [Content(""), Content.styled(one_line(session.trouble, 300), "$engine-booting")]
    if any(step.phase == "failed" for step in session.steps.values()):
        shown += [
            Content(""),
            Content.styled(
                "Press 7 for the whole log, 5 for the processes and to start one again", ""
            ),
        ]
    return lines(*shown)


class OverviewScreen(ConsoleScreen):
    """The first screen; until something is known it shows what is being started."""

    area: ClassVar[str] = "Overview"
    help_text: ClassVar[str] = (
        "The engine's states as blocks with the time spent in each; the mean reward by global step "
        "with one standard deviation as a band; how many groups a minute are over, where their "
        "time goes and how many of them teach nothing (dead). Alerts say what to do. "
        "Colours never stand alone: each state, phase and verdict has its word or sign."
    )

    def compose_body(self) -> Iterable[Widget]:
        """Two columns when wide, one below the other when narrow."""
        yield Section(starting, frozenset({"starting", "clock", "link", "children"}), id="starting")
        with VerticalScroll(id="overview"):
            with Container(id="top"):
                with Vertical(id="left"):
                    yield Section(parts.engines, frozenset({"server", "servers", "clock"}))
                    yield Section(parts.rewards, frozenset({"servers", "totals"}), id="curve")
                with Vertical(id="right"):
                    yield Section(parts.alerts, frozenset({"alerts", "children", "clock"}))
                    yield Section(parts.pace, frozenset({"groups", "clock"}))
                    yield Section(parts.mock, frozenset({"mock", "clock"}))
            yield Section(parts.groups, frozenset({"groups", "clock"}), id="newest")

    def update_view(self, dirty: frozenset[str]) -> None:
        """Hand the keys on to the sections."""
        seen = self.session.seen
        overview = self.query_one("#overview")
        if overview.display != seen:
            overview.display = seen
            self.query_one("#starting").display = not seen
            dirty = EVERYTHING
        for section in self.query(Section):
            section.paint(self.session, dirty)
