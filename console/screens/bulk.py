"""One order for all marked groups: which verb, for how many of them."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from console.models.bulk import BULK, BulkVerb
from console.screens.dialogs.abort import TALL
from console.text.format import plural
from core.state import Group


class BulkScreen(ModalScreen[BulkVerb | None]):
    """Answers with the verb; each has the key that it has for one group."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(verb.key, f"choose({verb.key!r})", verb.title, show=False) for verb in BULK),
        Binding("escape", "leave", "Leave", id="bulk.leave"),
    ]

    def __init__(self, groups: Sequence[Group], now: float, verbs: Sequence[BulkVerb]) -> None:
        super().__init__()
        self._verbs = verbs
        self._count = len(groups)
        self._fits = {verb.key: len(verb.fits(groups, now)) for verb in verbs}

    def compose(self) -> ComposeResult:
        """How many are marked, what can be done to them."""
        with Vertical(classes="dialog"):
            yield Static(plural(self._count, "marked group"), markup=False, classes="dialog-title")
            yield OptionList(
                *(
                    Option(self._row(verb), id=verb.action, disabled=not self._fits[verb.key])
                    for verb in self._verbs
                ),
                markup=False,
                compact=True,
            )
            asks = any(verb.question for verb in self._verbs)
            more = ". What is lost is asked before anything is done" if asks else ""
            yield Static(
                f"A key or Enter chooses, Esc leaves{more}", markup=False, classes="dialog-hint"
            )

    def on_mount(self) -> None:
        """Room is short on a small terminal."""
        self.set_class(self.app.size.height < TALL, "-tight")

    def _row(self, verb: BulkVerb) -> str:
        count = self._fits[verb.key]
        fits = "all" if count == self._count else f"{count} of {self._count}"
        return f"{verb.key}  {verb.title:<16} {fits if count else 'none'}"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter or a click."""
        event.stop()
        found = next((verb for verb in self._verbs if verb.action == event.option.id), None)
        self.dismiss(found)

    def action_choose(self, key: str) -> None:
        """A verb by its key."""
        verb = next((one for one in self._verbs if one.key == key), None)
        if verb is None:
            return
        if self._fits[key]:
            self.dismiss(verb)
        else:
            self.app.notify(f"{verb.title} makes sense for none of them", severity="warning")

    def action_leave(self) -> None:
        """Escape."""
        self.dismiss(None)
