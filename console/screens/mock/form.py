"""The settings of the mock user: fields, checked before a start."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.message import Message
from textual.widgets import Input, Label

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import plain
from console.models.datasets import field_text
from core.state import Mock


class MockFieldError(UsageError):
    """A field is invalid; `field` is its name."""

    def __init__(self, field: str, what: str, todo: str) -> None:
        self.field = field
        super().__init__(what, todo=todo)


_TARGET = re.compile(r"https?://\S+|[\w-]+|.+\.ya?ml", re.DOTALL)
"""An address, the name of a target, or a target file."""

_LONGEST = 4_096
"""Most characters of a path or an address."""

Reader = Callable[[str], Any]
"""Parses an argument; raises ValueError."""


def _whole(least: int, most: int) -> Reader:
    def read(text: str) -> int:
        bare = text.removeprefix("-") if least < 0 else text
        if not (bare.isascii() and bare.isdecimal() and least <= int(text) <= most):
            raise ValueError(text)
        return int(text)

    return read


def _number(least: float, most: float) -> Reader:
    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return read


def _word(words: dict[str, Any]) -> Reader:
    def read(text: str) -> Any:
        matches = [value for word, value in words.items() if word.startswith(text.lower())]
        if len(matches) != 1:
            raise ValueError(text)
        return matches[0]

    return read


def _columns(text: str) -> str:
    for piece in text.split(","):
        part, sign, column = piece.partition("=")
        if piece.strip() and not (part.strip() and sign and column.strip()):
            raise ValueError(text)
    return text


def _target(text: str) -> str:
    if not _TARGET.fullmatch(text):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    label: str
    placeholder: str
    todo: str
    """What the field accepts."""
    read: Reader = str


_PACE = _number(0, 86_400)
_SYNC = _word({"ask on": None, "pause": True})
_TARGETS = (
    "An address such as http://host:8000/v1, a target file (.yaml), or the name of one that comes "
    "with the program, such as opencode"
)
_SEED = "A whole number, the seed that shuffles each pass"
_SIDES = {"all": None, "train": "train", "held-out": "held-out"}
_LINES: tuple[tuple[_Field, ...], ...] = (
    (_Field("dataset", "Dataset", "the shipped questions; o picks another", "A file or folder"),),
    (
        _Field("target", "Target", "the fake vLLM", _TARGETS, _target),
        _Field("columns", "Columns", "query=NAME", "PART=COLUMN, comma separated", _columns),
    ),
    (
        _Field("concurrency", "In flight", "3", "A whole number from 1", _whole(1, 10_000)),
        _Field("pace", "Pace s", "0", "Seconds between two requests of a worker, from 0", _PACE),
        _Field("rate", "Rate /s", "off", "Requests a second, above 0", _number(0.001, 1_000)),
        _Field("passes", "Passes", "1", "A whole number from 1", _whole(1, 10_000)),
    ),
    (
        _Field("seed", "Seed", "in order", _SEED, _whole(-(2**53), 2**53)),
        _Field("split", "Side", "all", "all, train or held-out", _word(_SIDES)),
        _Field("held_out", "Held out", "0.1", "A share from 0 to 1", _number(0, 1)),
        _Field("updates", "Updates", "no limit", "A whole number from 1", _whole(1, 1_000_000)),
    ),
    (
        _Field("pause_sync", "In a sync", "continue / pause", "continue / pause", _SYNC),
        _Field("results", "Results", "no file", "A file for one JSON line per row"),
    ),
)
FIELDS = {field.name: field for line in _LINES for field in line}


def read_fields(values: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of `mock.start`; empty fields are left out.

    Raises:
        MockFieldError: a field is invalid; the error says what it accepts.
    """
    args: dict[str, Any] = {}
    for name, field in FIELDS.items():
        text = values.get(name, "").strip()
        if not text:
            continue
        try:
            value = field.read(text)
        except ValueError as error:
            what = f"{field.label} cannot be `{text}`"
            raise MockFieldError(name, what, field.todo) from error
        if value is not None:
            args[name] = value
    if "rate" in args and (args.get("pace") or "concurrency" in args):
        other = "pace" if args.get("pace") else "concurrency"
        raise MockFieldError(
            "rate",
            f"{FIELDS['rate'].label} and {FIELDS[other].label} exclude each other",
            "With a rate, requests do not wait for earlier answers",
        )
    if "held_out" in args and "split" not in args:
        raise MockFieldError("split", "A held-out share needs a side", "Choose train or held-out")
    return args


class MockForm(Container):
    """The fields; while one has the focus, letters are text."""

    class Edited(Message):
        """A field has changed."""

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[Input, str] | None = None
        """The focused field, and its text when it got the focus."""

    def compose(self) -> ComposeResult:
        """A row of labelled fields per line of the form."""
        for line in _LINES:
            with Horizontal(classes="mock-fields"):
                for field in line:
                    yield Label(field.label, markup=False)
                    yield Input(
                        id=f"mock-{field.name}",
                        placeholder=field.placeholder,
                        compact=True,
                        select_on_focus=False,
                    )

    def on_mount(self) -> None:
        """Show what each field accepts."""
        for name, field in FIELDS.items():
            self.query_one(f"#mock-{name}", Input).tooltip = field.todo

    def values(self) -> dict[str, str]:
        """Return the text of the fields."""
        return {name: self.query_one(f"#mock-{name}", Input).value for name in FIELDS}

    def fill(self, mock: Mock) -> None:
        """Show the settings of the last run; typed text stays."""
        own = _TARGET.fullmatch(mock.target)
        settings = {
            "dataset": field_text(mock.dataset),
            "target": mock.target if own else "",
            "columns": mock.columns,
            "concurrency": "" if mock.rate or mock.concurrency == 3 else str(mock.concurrency),
            "pace": f"{mock.pace:g}" if mock.pace else "",
            "rate": f"{mock.rate:g}" if mock.rate else "",
            "passes": str(mock.passes) if mock.passes > 1 else "",
            "seed": "" if mock.seed is None else str(mock.seed),
            "split": mock.split,
            "held_out": f"{mock.held_out:g}" if mock.split else "",
        }
        if not any(self.values().values()):
            for name, text in settings.items():
                if len(text) <= _LONGEST and plain(text) == text:  # the field can show it unchanged
                    self.put(name, text)

    def put(self, name: str, text: str) -> None:
        """Write into a field."""
        self.query_one(f"#mock-{name}", Input).value = text

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Remember the text of a field that gets the focus."""
        if isinstance(event.widget, Input):
            self._before = (event.widget, event.widget.value)

    def put_back(self) -> None:
        """Restore the text of the focused field."""
        if self._before is not None and self._before[0].has_focus:
            self._before[0].value = self._before[1]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `mock.start`.

        Raises:
            MockFieldError: a field is invalid.
        """
        return read_fields(self.values())

    def edit(self, name: str = "dataset") -> None:
        """Focus a field."""
        self.query_one(f"#mock-{name}", Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report the edit."""
        event.stop()
        self.post_message(self.Edited())
