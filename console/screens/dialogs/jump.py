"""Jump mode: a letter on each target."""

from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from console.screens.dialogs.places import JumpTarget, names, targets
from console.ui.keys import keys


class JumpScreen(ModalScreen[JumpTarget | None]):
    """Returns the chosen target; any key that is not one of its letters cancels."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    BINDINGS: ClassVar[list[BindingType]] = keys(("escape", "dismiss", "Leave", "jump.leave"))

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        all_targets = targets(below)
        self._named = dict(zip(names(len(all_targets)), all_targets, strict=False))
        self._typed = ""
        self._size_at_start: Size | None = None

    @property
    def named(self) -> dict[str, JumpTarget]:
        """The targets by their letters."""
        return self._named

    def compose(self) -> ComposeResult:
        """One mark for each target, and a line of help."""
        for name, target in self._named.items():
            if target.label:
                continue
            mark = Static(name.upper(), markup=False, classes="jump")
            mark.styles.offset = target.at
            yield mark
        yield Static(self._hint(), id="jump-hint")

    def _hint(self) -> Content:
        """Return the line of help, with the letters of targets out of sight."""
        named = [(name, target.label) for name, target in self._named.items() if target.label]
        if not self._named:
            return Content("Nothing to jump to")
        if not named:
            return Content("A letter jumps to its target, Esc cancels")
        pieces: list[tuple[str, str]] = []
        for name, label in named:
            pieces += [(name.upper(), "bold $accent"), (f" {label} ", "")]
        return Content.assemble(*pieces, "Esc")

    def on_key(self, event: events.Key) -> None:
        """Jump to the target of a letter; a pair of letters needs the second one."""
        if event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        self._typed += (event.character or " ").lower()
        if (target := self._named.get(self._typed)) is not None:
            self.dismiss(target)
            return
        remaining = [name for name in self._named if name.startswith(self._typed)]
        if not remaining:
            self.dismiss(None)
            return
        for mark in self.query(".jump").results(Static):
            mark.display = str(mark.content).lower().startswith(self._typed)

    def on_click(self) -> None:
        """Cancel on a click."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """Cancel: the targets have moved."""
        if self._size_at_start is not None and event.size != self._size_at_start:
            self.dismiss(None)
        self._size_at_start = event.size
