"""Picks a dataset: type to filter, arrows to preview, Enter to choose."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ajet_swarm.common.text import one_line
from console.models.datasets import FOLDER, DatasetChoice, datasets
from console.models.preview import Preview, previews, read_preview
from console.text.lines import fit
from console.widgets.dataset_preview import DatasetPreview, size_text

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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="picker.leave"),
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "scroll_preview(-5)", "Rows up", show=False),
        Binding("pagedown", "scroll_preview(5)", "Rows down", show=False),
    ]

    def __init__(self, home: Path | None, columns: str = "") -> None:
        super().__init__()
        self._home = home
        self._columns = columns
        self._all: Sequence[DatasetChoice] = ()
        self._shown: list[DatasetChoice] = []

    def compose(self) -> ComposeResult:
        """Filter, list, preview."""
        with Vertical(classes="dialog", id="picker"):
            yield Static("Which dataset?", markup=False, classes="dialog-title")
            yield Input(placeholder="type to filter, or a path", id="picker-filter", compact=True)
            with Horizontal(id="picker-body"):
                yield OptionList(id="picker-list", compact=True, markup=False)
                yield DatasetPreview(id="picker-preview")
            yield Static(_HINT, markup=False, id="picker-hint", classes="dialog-hint")

    def on_mount(self) -> None:
        """List the datasets."""
        self.query_one("#picker-list", OptionList).can_focus = False
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
        self._shown = [] if path else [choice for choice in self._all if matches(choice, text)]
        self._list()
        self._preview()

    def on_resize(self) -> None:
        """Fit the rows to another width."""
        self.call_after_refresh(self._list)

    def _list(self) -> None:
        options = self.query_one("#picker-list", OptionList)
        at = 0 if options.highlighted is None else options.highlighted
        options.clear_options()
        width = max(24, options.scrollable_content_region.width - 2)
        options.add_options([Option(Text(label(choice, width))) for choice in self._shown])
        if self._shown:
            options.highlighted = min(at, len(self._shown) - 1)

    def _preview(self) -> None:
        path = self.chosen
        self._show_error("")
        if path is not None:
            reader = partial(previews, path, self._columns, self._home)
            self.query_one(DatasetPreview).load(reader)

    @property
    def chosen(self) -> str | None:
        """The dataset under the cursor, else the typed path."""
        options = self.query_one("#picker-list", OptionList)
        if self._shown and options.highlighted is not None:
            return self._shown[options.highlighted].path
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

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Preview the dataset under the cursor."""
        event.stop()
        self._preview()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose with a click."""
        event.stop()
        self._choose(self._shown[event.option_index].path)

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
        options = self.query_one("#picker-list", OptionList)
        if self._shown:
            at = (options.highlighted or 0) + by
            options.highlighted = max(0, min(at, len(self._shown) - 1))

    def action_scroll_preview(self, rows: int) -> None:
        """Scroll the preview."""
        self.query_one(DatasetPreview).scroll_relative(y=rows, animate=False)

    def action_leave(self) -> None:
        """Cancel."""
        self.dismiss(None)


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
    right = "  ".join(part for part in (size, _PLACES.get(choice.where, "")) if part)
    name = fit(one_line(choice.name, 200), max(8, width - len(right) - 2))
    return name + " " * max(2, width - cell_len(name) - len(right)) + right
