"""Input line of a list filter: it shows errors at their character and completes with Tab."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input

from console.session.filter_completion import Completion, complete
from console.session.filters import Filter, FilterError, parse
from console.text.lines import Line, fit
from console.text.wrap import safe, wrapped
from console.widgets.pane import TextPane

_PROMPT = "/ "


class FilterText(Input):
    """Text field of the filter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete(1)", "Complete", show=False),
        Binding("shift+tab", "complete(-1)", "Complete", show=False),
    ]

    class Complete(Message):
        """Tab was pressed."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def action_complete(self, by: int) -> None:
        """Request the next completion."""
        self.post_message(self.Complete(by))


class FilterLine(Vertical):
    """The line for the filter; hidden until it is opened."""

    DEFAULT_CSS = """
    FilterLine { height: auto; display: none; }
    FilterLine #filter-error { max-height: 5; display: none; }
    FilterLine #filter-hint { height: 1; display: none; }
    FilterLine #filter-row { height: 1; background: $panel; }
    FilterLine #filter-prompt { width: 2; height: 1; }
    FilterLine Input { width: 1fr; background: $panel; }
    """

    class Changed(Message):
        """The text was parsed."""

        def __init__(self, row_filter: Filter) -> None:
            super().__init__()
            self.filter = row_filter

    class Closed(Message):
        """Enter closed the line; the filter stays."""

    def __init__(self) -> None:
        super().__init__()
        self.known: Mapping[str, Iterable[str]] = {}
        """Known values, by field."""
        self._completion = Completion(0, 0)
        self._chosen: int | None = None
        self._typing = True

    def compose(self) -> ComposeResult:
        """Error, completions, the line."""
        yield TextPane(id="filter-hint")
        yield TextPane(id="filter-error")
        with Horizontal(id="filter-row"):
            yield TextPane(id="filter-prompt")
            yield FilterText(
                compact=True, placeholder="state:awaiting reward<0.2 text~paris   Tab completes"
            )

    def on_mount(self) -> None:
        """Show the prompt before the text."""
        self.query_one("#filter-prompt", TextPane).show_lines([((_PROMPT, "bold $accent"),)])

    @property
    def line(self) -> Input:
        """The text field."""
        return self.query_one(Input)

    def open(self) -> None:
        """Show the line and focus it."""
        self.display = True
        self.line.focus()
        self._update_completion()

    def close(self) -> None:
        """Leave the line; an empty one is hidden."""
        self.query_one("#filter-error", TextPane).display = False
        self.query_one("#filter-hint", TextPane).display = False
        self.display = bool(self.line.value.strip())

    def put(self, text: str) -> None:
        """Filter by `text`, as if it had been typed and confirmed."""
        self.line.value = text
        self.close()

    def clear(self) -> None:
        """Remove the filter."""
        self.line.value = ""
        self.close()

    # --- typing --------------------------------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the operator types."""
        event.stop()
        if self._typing:
            self._chosen = None
        self._typing = True
        pane = self.query_one("#filter-error", TextPane)
        try:
            row_filter = parse(event.value)
        except FilterError as error:
            place, what, todo = len(_PROMPT) + error.position, error.what, error.todo
            pane.display = self.line.has_focus
            pane.show((what, todo, place), lambda width: error_lines(what, todo, place, width))
        else:
            pane.display = False
            self.post_message(self.Changed(row_filter))
        if self.line.has_focus:
            self._update_completion()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the line on Enter, unless the filter is invalid and therefore not applied."""
        event.stop()
        if self.query_one("#filter-error", TextPane).display:
            return
        self.close()
        self.post_message(self.Closed())

    def on_filter_text_complete(self, event: FilterText.Complete) -> None:
        """Replace the typed word by the next completion."""
        event.stop()
        options = self._completion.options
        if not options:
            return
        last = len(options) - 1
        first = 0 if event.by > 0 else last
        self._chosen = first if self._chosen is None else (self._chosen + event.by) % len(options)
        chosen, line = options[self._chosen], self.line
        start, end = self._completion.start, self._completion.end
        self._typing = False
        line.value = line.value[:start] + chosen + line.value[end:]
        line.cursor_position = start + len(chosen)
        if len(options) == 1:  # only one: continue with the next word
            self._chosen = None
        else:
            self._completion = Completion(start, start + len(chosen), options)
        self._show_hint()

    def _update_completion(self) -> None:
        if self._chosen is None:
            line = self.line
            self._completion = complete(line.value, line.cursor_position, self.known)
        self._show_hint()

    def _show_hint(self) -> None:
        completion, chosen = self._completion, self._chosen
        pane = self.query_one("#filter-hint", TextPane)
        pane.display = bool(completion.options or completion.hint)
        pane.show((completion, chosen), lambda width: [hint_line(completion, chosen, width)])


def hint_line(completion: Completion, chosen: int | None, width: int) -> Line:
    """Return the completions that fit on one line; the chosen one stays visible."""
    if not completion.options:
        return (("  ", ""), (fit(completion.hint, width - 2), "$muted"))
    pieces: list[tuple[str, str]] = [("⇥ ", "$faint")]
    first = 0
    if chosen is not None:
        while cell_len("  ".join(completion.options[first : chosen + 1])) > width - 4:
            first += 1
    for place, option in enumerate(completion.options[first:], first):
        pieces.append((safe(option), "bold $accent" if place == chosen else "$muted"))
        pieces.append(("  ", ""))
    return tuple(pieces)


def error_lines(what: str, todo: str, place: int, width: int) -> list[Line]:
    """Return the error above the line: what is valid, then a mark over the invalid character."""
    lines: list[Line] = [((f"  {text}", "$muted"),) for text in wrapped(todo, width - 4)]
    text = f"▾ {safe(what)}"
    if place + cell_len(text) <= width:
        text = " " * place + text
    else:
        text = f"character {place - len(_PROMPT) + 1}: {safe(what)}"
    return [*lines, ((fit(text, width), "$reward-down"),)]
