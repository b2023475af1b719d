"""Dialog that asks for the rating mode."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from console.views.rating import MODES, mode_words
from core.commands import MODES as NAMES


class ModeScreen(ModalScreen[str | None]):
    """Lists the three modes with their effect on the waiting user."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="mode.leave"),
        *(
            Binding(str(number), f"take('{name}')", mode_words(name), show=False)
            for number, name in enumerate(NAMES, 1)
        ),
    ]

    def __init__(self, present: str) -> None:
        super().__init__()
        self._present = present

    def compose(self) -> ComposeResult:
        """The modes, with the cursor on the present one."""
        with Vertical(classes="dialog"):
            yield Static("How do you rate?", markup=False, classes="dialog-title")
            yield OptionList(
                *(
                    Option(f"{number}  {MODES[name]}", id=name)
                    for number, name in enumerate(NAMES, 1)
                ),
                markup=False,
                compact=True,
            )
            present = f"Now: {mode_words(self._present)}. Enter or a digit confirm, Esc cancel"
            yield Static(present, markup=False, classes="dialog-hint")

    def on_mount(self) -> None:
        """Put the cursor on the present mode."""
        if self._present in NAMES:
            self.query_one(OptionList).highlighted = NAMES.index(self._present)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the mode."""
        event.stop()
        self.dismiss(event.option.id)

    def action_take(self, name: str) -> None:
        """Choose a mode by digit."""
        self.dismiss(name)

    def action_leave(self) -> None:
        """Cancel."""
        self.dismiss(None)
