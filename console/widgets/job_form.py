"""The fields of a job, in two columns; the focused one shows its help."""

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.containers import Grid, Horizontal
from textual.css.query import NoMatches
from textual.events import DescendantFocus
from textual.message import Message
from textual.widgets import Input, Label, Select

from ajet_swarm.common.text import plain
from console.models.job_fields import BY_NAME, FIELDS, RULES, Field


class JobForm(Grid):
    """Fields of a job; while one has the focus, letters are text."""

    class Edited(Message):
        """A field has changed."""

    class Entered(Message):
        """A field has the focus."""

        def __init__(self, field: Field) -> None:
            super().__init__()
            self.field = field

    def __init__(self) -> None:
        super().__init__(id="job-form")

    def compose(self) -> ComposeResult:
        """A label and a field for each entry."""
        for field in FIELDS:
            with Horizontal(classes="job-field", id=f"box-{field.name}"):
                yield Label(field.label, markup=False)
                if field.kind == "rule":
                    yield Select(
                        [(word, rule) for word, rule in RULES.items()],
                        compact=True,
                        id=f"job-{field.name}",
                        prompt="server default",
                    )
                else:
                    kind = {"int": "integer", "float": "number"}.get(field.kind, "text")
                    own = "" if field.name == "model" else "server default"
                    yield Input(
                        compact=True,
                        id=f"job-{field.name}",
                        placeholder=own,
                        type="text",
                        classes=f"-{kind}",
                        max_length=300,
                    )

    def fill(self, values: Mapping[str, str] | None) -> bool:
        """Show values without reporting an edit; return False when there are none."""
        for name, value in (values or {}).items():
            with self.prevent(Input.Changed, Select.Changed):
                self._put(name, value)
        return values is not None

    def _put(self, name: str, value: str) -> None:
        if BY_NAME[name].kind != "rule":
            self.query_one(f"#job-{name}", Input).value = plain(value)
            return
        select: Select[str] = self.query_one(f"#job-{name}", Select)
        if value in RULES.values():
            select.value = value
        else:
            select.clear()

    def values(self) -> dict[str, str]:
        """Return the text of the fields."""
        texts: dict[str, str] = {}
        for field in FIELDS:
            if field.kind == "rule":
                chosen: Select[str] = self.query_one(f"#job-{field.name}", Select)
                value = chosen.value
                texts[field.name] = value if isinstance(value, str) else ""
            else:
                texts[field.name] = self.query_one(f"#job-{field.name}", Input).value
        return texts

    def mark(self, changed: frozenset[str], wrong: str = "") -> None:
        """Mark the fields that differ from the running job, and the invalid one."""
        for field in FIELDS:
            box = self.query_one(f"#box-{field.name}")
            box.set_class(field.path in changed, "-changed")
            box.set_class(field.name == wrong, "-wrong")

    def edit(self, name: str = "") -> None:
        """Focus a field, the first one by default."""
        try:
            self.query_one(f"#job-{name or FIELDS[0].name}").focus()
        except NoMatches:
            return

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report the edit."""
        event.stop()
        self.post_message(self.Edited())

    def on_select_changed(self, event: Select.Changed) -> None:
        """Report the edit."""
        event.stop()
        self.post_message(self.Edited())

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Show the help of the field."""
        name = (event.widget.id or "").removeprefix("job-")
        if name in BY_NAME:
            self.post_message(self.Entered(BY_NAME[name]))
