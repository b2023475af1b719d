"""What the mock user should ask: four fields, checked before anything is started."""

from typing import Any

from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.message import Message
from textual.widgets import Input, Label

from core.errors import UsageError

_FIELDS = (
    ("dataset", "Dataset", "the shipped questions, or a JSONL file"),
    ("concurrency", "In flight", "3"),
    ("pace", "Pace s", "0"),
    ("passes", "Passes", "1"),
)


class FieldError(UsageError):
    """A field cannot be used; `field` is its name."""

    def __init__(self, field: str, what: str, todo: str) -> None:
        self.field = field
        super().__init__(what, todo=todo)


def read_fields(values: dict[str, str]) -> dict[str, Any]:
    """Arguments of `mock.start`; fields left empty are left out.

    Raises:
        FieldError: a field is no number, or out of range.
    """
    args: dict[str, Any] = {}
    if dataset := values.get("dataset", "").strip():
        args["dataset"] = dataset
    for name, least in (("concurrency", 1), ("passes", 1)):
        if text := values.get(name, "").strip():
            if not text.isdecimal() or not least <= int(text) <= 10_000:
                raise FieldError(name, f"{name} cannot be `{text}`", "A whole number from 1")
            args[name] = int(text)
    if text := values.get("pace", "").strip():
        args["pace"] = _pace(text)
    return args


def _pace(text: str) -> float:
    try:
        pace = float(text)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 86_400:
        raise FieldError(
            "pace", f"pace cannot be `{text}`", "Seconds between two requests of a worker, from 0"
        )
    return pace


class MockForm(Container):
    """The fields; they keep bare letters to themselves while one has the focus."""

    class Edited(Message):
        """A field has changed."""

    def compose(self) -> ComposeResult:
        """A line for the dataset, one for the numbers."""
        for names in (("dataset",), ("concurrency", "pace", "passes")):
            with Horizontal(classes="mock-fields"):
                for name, label, placeholder in _FIELDS:
                    if name in names:
                        yield Label(label, markup=False)
                        yield Input(id=f"mock-{name}", placeholder=placeholder, compact=True)

    def values(self) -> dict[str, str]:
        """What stands in the fields."""
        return {name: self.query_one(f"#mock-{name}", Input).value for name, _, _ in _FIELDS}

    def arguments(self) -> dict[str, Any]:
        """Arguments of `mock.start`; the field at fault gets the focus.

        Raises:
            FieldError: a field cannot be used.
        """
        try:
            return read_fields(self.values())
        except FieldError as error:
            self.query_one(f"#mock-{error.field}", Input).focus()
            raise

    def edit(self) -> None:
        """Put the cursor into the first field."""
        self.query_one("#mock-dataset", Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the screen, which checks and previews."""
        event.stop()
        self.post_message(self.Edited())
