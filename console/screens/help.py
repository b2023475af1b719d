"""`?`: what the present screen is for and which keys it takes now."""

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from core.text import plain

_WIDTH = 84
_FRAME = 10
"""Cells of the dialog, and those its border, padding and scroll bar take."""


class HelpScreen(ModalScreen[None]):
    """Text and keys; any of the keys that open things closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "app.pop_screen", "Close", id="help.close"),
    ]

    def __init__(self, area: str, text: str, bindings: Mapping[str, ActiveBinding]) -> None:
        super().__init__()
        self._area = area
        self._text = text
        self._active = list(bindings.values())

    def compose(self) -> ComposeResult:
        """Title, keys that work everywhere, text, keys of the screen."""
        with VerticalScroll(classes="dialog -wide"):
            yield Static(f"{self._area}: help", markup=False, classes="dialog-title")
            everywhere = [one for one in self._active if one.node is self.app]
            yield Static(self._on_one_line(everywhere), markup=False, classes="dialog-body")
            if self._text:
                yield Static(plain(self._text), markup=False, classes="dialog-body")
            here = [
                one
                for one in self._active
                if one.node is not self.app and not type(one.node).__module__.startswith("textual.")
            ]
            yield Static("Here", markup=False, classes="dialog-heading")
            yield Static(self._keys(here), markup=False)
            yield Static("Esc closes", markup=False, classes="dialog-hint")

    def _on_one_line(self, active: list[ActiveBinding]) -> Content:
        """Everywhere's keys take little room: they must be seen without scrolling."""
        rows: dict[str, list[str]] = {}
        for one in active:
            if not one.binding.system and one.binding.description:
                key = self.app.get_key_display(one.binding)
                rows.setdefault(one.binding.description, []).append(key)
        room = min(_WIDTH, int(0.94 * self.app.size.width)) - _FRAME
        shown = [Content.styled("Everywhere", "bold $heading")]
        for description, keys in rows.items():
            piece = Content.assemble((" ".join(keys), "bold $accent"), (f" {description}", ""))
            if shown[-1].cell_length + 2 + piece.cell_length <= room:
                shown[-1] = Content.assemble(shown[-1], "  ", piece)
            else:
                shown.append(piece)
        return Content("\n").join(shown)

    def _keys(self, active: list[ActiveBinding]) -> Content:
        rows: dict[tuple[str, str], list[str]] = {}
        for one in active:
            if one.binding.system or not one.binding.description:
                continue
            words = (one.binding.description, one.tooltip or one.binding.tooltip)
            rows.setdefault(words, []).append(self.app.get_key_display(one.binding))
        lines = []
        for (description, tooltip), keys in rows.items():
            more = f"  {tooltip}" if tooltip and tooltip != description else ""
            lines.append(
                Content.assemble(
                    (f"  {' '.join(keys):<12}", "bold $accent"),
                    f" {description:<14}",
                    (plain(more), "$muted"),
                )
            )
        return Content("\n").join(lines) if lines else Content("  no keys of its own")
