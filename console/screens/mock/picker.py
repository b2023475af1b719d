"""Picks a dataset: type to filter, arrows to preview, Enter to choose."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ajet_swarm.common.text import one_line
from console.models.datasets import FOLDER, SHIPPED, DatasetChoice, datasets
from console.models.preview import Preview, previews, read_preview
from console.screens.mock.preview import DatasetPreview, size_text
from console.text.lines import fit
from console.ui.keys import keys
from console.widgets.item_list import ItemList

_PATH = ("/", "~", "./", "../")
"""Text that starts with one of these is a path."""
_PLACES = {"home": FOLDER, "here": "here", "shipped": ""}
_HINT = f"Enter confirm, Esc cancel. From here and the home's folder {FOLDER}"


class DatasetPicker(ModalScreen[str | None]):
    """A list of datasets beside a preview of the one under the cursor.

    Args:
        home: The home's folder, or None.
        columns: `PART=COLUMN,...` of the form, for the preview.
    """

    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("escape", "dismiss", "Leave", "picker.leave"),
        ("up", "move(-1)", "Up"),
        ("down", "move(1)", "Down"),
        ("pageup", "scroll_preview(-5)", "Rows up"),
        ("pagedown", "scroll_preview(5)", "Rows down"),
    )

    def __init__(self, home: Path | None, columns: str = "") -> None:
        super().__init__()
        self._home = home
        self._columns = columns
        self._all: Sequence[DatasetChoice] = ()

    def compose(self) -> ComposeResult:
        """Filter, list, preview."""
        with Vertical(classes="dialog", id="picker"):
            yield Static("Which dataset?", markup=False, classes="dialog-title")
            yield Input(placeholder="type to filter, or a path", id="picker-filter", compact=True)
            with Horizontal(id="picker-body"):
                yield ItemList(id="picker-list")
                yield DatasetPreview(id="picker-preview")
            yield Static(_HINT, markup=False, id="picker-hint", classes="dialog-hint")

    def on_mount(self) -> None:
        """List the datasets."""
        self.query_one(ItemList).can_focus = False
        self.query_one("#picker-filter", Input).focus()
        self._list_datasets()

    @work(thread=True, exclusive=True, group="find", exit_on_error=False)
    def _list_datasets(self) -> None:
        root = self._home if self._home is not None else Path("/nonexistent")
        choices = datasets(root, Path.cwd())
        self.app.call_from_thread(self._set_choices, choices)

    def _set_choices(self, choices: Sequence[DatasetChoice]) -> None:
        self._all = choices
        self._filter()

    def _filter(self) -> None:
        text = self.query_one("#picker-filter", Input).value.strip().lower()
        path = text.startswith(_PATH)
        shown = tuple(choice for choice in self._all if not path and matches(choice, text))
        choices = self.query_one(ItemList)
        choices.show_rows(
            shown,
            lambda choice: choice.path or SHIPPED,
            lambda choice, width: ((label(choice, max(24, width - 2)), ""),),
        )
        choices.action_edge(0)
        self._preview()

    def _preview(self) -> None:
        path = self.chosen
        self._show_error("")
        if path is not None:
            reader = partial(previews, path, self._columns, self._home)
            self.query_one(DatasetPreview).load(reader)

    @property
    def chosen(self) -> str | None:
        """The dataset under the cursor, empty for the shipped one; else the typed path."""
        if chosen := self.query_one(ItemList).cursor:
            return "" if chosen == SHIPPED else chosen
        return self.query_one("#picker-filter", Input).value.strip() or None

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the operator types."""
        event.stop()
        self._filter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Choose."""
        event.stop()
        if (path := self.chosen) is not None:
            self._choose(path)

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Preview the dataset under the cursor."""
        event.stop()
        self._preview()

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Choose with a second click."""
        event.stop()
        self._choose("" if event.key == SHIPPED else event.key)

    @work(thread=True, exclusive=True, group="take", exit_on_error=False)
    def _choose(self, path: str) -> None:
        """Choose a dataset that can be read; otherwise show the cause and stay open."""
        preview = read_preview(path, self._columns, self._home)
        self.app.call_from_thread(self._close_if_readable, path, preview)

    def _close_if_readable(self, path: str, preview: Preview) -> None:
        if not self.is_current or path != self.chosen:
            return
        if preview.readable:
            self.dismiss(path)
        else:
            self._show_error(f"Not chosen: {preview.error}")

    def _show_error(self, fault: str) -> None:
        """Show why the last choice was refused; "" restores the hint."""
        hint = self.query_one("#picker-hint", Static)
        hint.set_class(bool(fault), "-fault")
        hint.update(Text(one_line(fault, 200)) if fault else _HINT)

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.query_one(ItemList).action_move(by)

    def action_scroll_preview(self, rows: int) -> None:
        """Scroll the preview."""
        self.query_one(DatasetPreview).scroll_relative(y=rows, animate=False)


def matches(choice: DatasetChoice, typed: str) -> bool:
    """Return whether the name contains the typed characters in order."""
    at = 0
    text = f"{choice.where} {choice.name}".lower()
    for letter in typed:
        at = text.find(letter, at) + 1
        if not at:
            return False
    return True


def label(choice: DatasetChoice, width: int) -> str:
    """Return name, place and size on one line."""
    size = "folder" if choice.folder else size_text(choice.size) if choice.size else ""
    right = "  ".join(filter(None, (size, _PLACES.get(choice.where, ""))))
    return fit(one_line(choice.name, 200), max(8, width - len(right) - 2)) + "  " + right
