"""Jump mode on screen: a letter on everything that can be gone to."""

from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from console.screens.dialogs.places import JumpTarget, names, targets


class JumpScreen(ModalScreen[JumpTarget | None]):
    """Answers with what was chosen; any key that is no letter of it leaves."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="jump.leave"),
    ]

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        found = targets(below)
        self._named = dict(zip(names(len(found)), found, strict=False))
        self._typed = ""
        self._laid: Size | None = None

    @property
    def named(self) -> dict[str, JumpTarget]:
        """What can be gone to, by the letters it shows."""
        return self._named

    def compose(self) -> ComposeResult:
        """One mark for each target, and a line that says what to do."""
        for name, target in self._named.items():
            if target.label:
                continue
            mark = Static(name.upper(), markup=False, classes="jump")
            mark.styles.offset = target.at
            yield mark
        yield Static(self._hint(), id="jump-hint")

    def _hint(self) -> Content:
        """What to do, and the letters of what is not in sight."""
        named = [(name, one.label) for name, one in self._named.items() if one.label]
        if not self._named:
            return Content("There is nothing to jump to")
        if not named:
            return Content("A letter jumps there, Esc cancels")
        pieces: list[tuple[str, str]] = []
        for name, label in named:
            pieces += [(name.upper(), "bold $accent"), (f" {label}  ", "")]
        return Content.assemble(*pieces, "Esc leaves")

    def on_key(self, event: events.Key) -> None:
        """A letter of a mark; with pairs the second one decides."""
        if event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        self._typed += (event.character or " ").lower()
        if (target := self._named.get(self._typed)) is not None:
            self.dismiss(target)
            return
        left = [name for name in self._named if name.startswith(self._typed)]
        if not left:
            self.dismiss(None)
            return
        for mark in self.query(".jump").results(Static):
            mark.display = str(mark.content).lower().startswith(self._typed)

    def on_click(self) -> None:
        """A click anywhere leaves."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """What the letters stand on has moved."""
        if self._laid is not None and event.size != self._laid:
            self.dismiss(None)
        self._laid = event.size

    def action_leave(self) -> None:
        """Escape."""
        self.dismiss(None)
