"""Questions: yes or no before something is lost, one line of text, a screen to open."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Button, Input, Static

from ajet_swarm.common.text import plain
from console.models.screen_registry import ScreenSpec
from console.ui.keys import keys


class ConfirmScreen(ModalScreen[bool]):
    """Asks for confirmation of a loss; Escape, or Enter on the first button, cancels."""

    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("y", "answer(True)", "Yes", "confirm.yes"),
        ("n,escape", "answer(False)", "No", "confirm.no"),
        ("left,right", "app.focus_next", "Other button"),
        ("up", "move(-1)", "Up"),
        ("down", "move(1)", "Down"),
        ("pageup", "move(-8)", "Page up"),
        ("pagedown,space", "move(8)", "Page down"),
    )

    def __init__(self, title: str, body: str, danger_label: str, detail: str = "") -> None:
        super().__init__()
        self._title = title
        self._body = body
        self._label = danger_label
        self._detail = detail

    def compose(self) -> ComposeResult:
        """Title, loss, detail, two buttons."""
        with Vertical(classes="dialog -danger -wide" if self._detail else "dialog -danger"):
            yield Static(plain(self._title), markup=False, classes="dialog-title")
            yield Static(plain(self._body), markup=False, classes="dialog-body")
            if self._detail:
                with VerticalScroll(id="confirm-detail", can_focus=False):
                    yield Static(plain(self._detail), markup=False)
            with Horizontal(classes="dialog-buttons"):
                yield Button("No, keep  n", id="no", compact=True)
                yield Button(f"{self._label}  y", id="yes", variant="error", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer as the key of the button does."""
        event.stop()
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Close with an answer."""
        self.dismiss(answer)

    def action_move(self, lines: int) -> None:
        """Scroll the detail."""
        for detail in self.query("#confirm-detail"):
            detail.scroll_relative(y=lines, animate=False)


ASK_HINT = "Enter confirm, Esc cancel"


class AskScreen(ModalScreen[str | None]):
    """Asks for one line of text."""

    BINDINGS: ClassVar[list[BindingType]] = keys(("escape", "dismiss", "Leave", "ask.leave"))

    def __init__(self, title: str, label: str = "", value: str = "", hint: str = ASK_HINT) -> None:
        super().__init__()
        self._hint = hint
        self._title = title
        self._label = label
        self._value = value

    def compose(self) -> ComposeResult:
        """Title, hint, line."""
        with Vertical(classes="dialog"):
            yield Static(plain(self._title), markup=False, classes="dialog-title")
            if self._label:
                yield Static(plain(self._label), markup=False, classes="dialog-body")
            yield Input(" ".join(plain(self._value).split("\n")), compact=True, id="answer")
            yield Static(plain(self._hint), markup=False, classes="dialog-hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the text."""
        event.stop()
        self.dismiss(event.value)


class LineScreen(ModalScreen[str | None]):
    """The line at the bottom, opened with `:`."""

    BINDINGS: ClassVar[list[BindingType]] = keys(("escape", "dismiss", "Leave", "line.leave"))

    def __init__(self, specs: Sequence[ScreenSpec]) -> None:
        super().__init__()
        self._names = [spec.name for spec in specs] + ["quit"]

    def compose(self) -> ComposeResult:
        """The colon, the input line, and the names it accepts."""
        with Vertical(id="line"):
            with Horizontal(id="line-input"):
                yield Static(":", markup=False, id="line-colon")
                yield Input(
                    compact=True, suggester=SuggestFromList(self._names, case_sensitive=False)
                )
            names = "  ".join([*self._names, "or an id"])
            yield Static(names, markup=False, id="line-names")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the text."""
        event.stop()
        self.dismiss(event.value)
