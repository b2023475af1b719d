"""The job of one server: fields or YAML, its changes, saving and applying it."""

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Grid, Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Label, Select, TextArea

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain, plural
from console.models.job_fields import BY_NAME, FIELDS, PRESETS, RULES, FieldError
from console.screens.base import ConsoleScreen
from console.screens.engine.text import (
    diff_lines,
    help_lines,
    notice_lines,
    preset_lines,
    source_lines,
)
from console.screens.run_command import loss_of
from console.session.command_plans import may_send
from console.session.server_facts import as_ended
from console.text.format import server_color, state_word
from console.text.lines import Line
from console.text.wrap import wrapped
from console.ui.keys import keys
from console.widgets.editor import EditorError, edit_text
from console.widgets.key_area import KeyArea
from console.widgets.pane import TextPane

CHECK_DELAY = 0.3
"""Seconds after the last key before a YAML text is checked."""
_ROWS_OF_PRESETS = 20
"""Fewest rows of a terminal that has room for the presets below the fields."""


class JobForm(Grid):
    """Fields of a job; while one has the focus, letters are text."""

    class Edited(Message):
        """A field has changed."""

    def compose(self) -> ComposeResult:
        """A label and a field for each entry."""
        for field in FIELDS:
            name = f"job-{field.name}"
            with Horizontal(classes="job-field", id=f"box-{field.name}"):
                yield Label(field.label, markup=False)
                if field.kind == "rule":
                    yield Select([*RULES.items()], compact=True, id=name, prompt="server default")
                else:
                    kind = {"int": "integer", "float": "number"}.get(field.kind, "text")
                    own = "" if field.name == "model" else "server default"
                    classes = f"-{kind}"
                    yield Input(
                        compact=True, id=name, placeholder=own, classes=classes, max_length=300
                    )

    def fill(self, values: Mapping[str, str] | None) -> bool:
        """Show values without reporting an edit; return False when there are none."""
        with self.prevent(Input.Changed, Select.Changed):
            for name, value in (values or {}).items():
                box = self.query_one(f"#job-{name}")
                if isinstance(box, Input):
                    box.value = plain(value)
                elif isinstance(box, Select) and value in RULES.values():
                    box.value = value
                elif isinstance(box, Select):
                    box.clear()
        return values is not None

    def values(self) -> dict[str, str]:
        """Return the text of the fields."""
        texts: dict[str, str] = {}
        for field in FIELDS:
            box = self.query_one(f"#job-{field.name}")
            value = box.value if isinstance(box, Input | Select) else ""
            texts[field.name] = value if isinstance(value, str) else ""
        return texts

    def mark(self, changed: frozenset[str], wrong: str = "") -> None:
        """Mark the fields that differ from the running job, and the invalid one."""
        for field in FIELDS:
            box = self.query_one(f"#box-{field.name}")
            box.set_class(field.path in changed, "-changed")
            box.set_class(field.name == wrong, "-wrong")

    def edit(self, name: str = "") -> None:
        """Focus a field, the first one by default."""
        self.query_one(f"#job-{name or FIELDS[0].name}").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report the edit."""
        event.stop()
        self.post_message(self.Edited())

    def on_select_changed(self, event: Select.Changed) -> None:
        """Report the edit."""
        event.stop()
        self.post_message(self.Edited())


class JobEditor(KeyArea):
    """The draft of a job, as fields or as YAML; reports each change by `Changed`."""

    DEFAULT_CSS = "JobEditor { height: auto; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("e", "edit", "Edit", "job.edit", "Go to the fields, or into the YAML"),
            ("y", "yaml", "YAML", "job.yaml", "Fields or the whole YAML"),
        ),
        *keys(("o", "editor", "Editor", "job.editor", "The YAML in $EDITOR"), shown=False),
        *keys(
            ("d", "take('default')", "Default", "job.default", "The default job"),
            ("u", "take('running')", "Undo", "job.running", "The current job of the server"),
        ),
        *keys(
            *(
                (preset.key, f"preset('{name}')", preset.name, f"job.{name}", preset.about)
                for name, preset in PRESETS.items()
            ),
            shown=False,
        ),
    ]

    def __init__(self) -> None:
        super().__init__(focusable=True)
        from console.models.job_form import JobDraft  # it loads the protocol's package

        self.draft = JobDraft()
        self.as_yaml = False
        self.about = ""
        """A message, shown while there is no error."""
        self.stored = ""
        """Text that is stored elsewhere; changes against it would be lost."""

    def compose(self) -> ComposeResult:
        """The fields, and the text in place of them."""
        yield JobForm(id="job-form")
        area = TextArea("", show_line_numbers=True, soft_wrap=False, compact=True, id="job-yaml")
        area.display = False
        yield area

    @property
    def form(self) -> JobForm:
        """The fields."""
        return self.query_one(JobForm)

    @property
    def area(self) -> TextArea:
        """The text."""
        return self.query_one(TextArea)

    def obstacle(self, action: str) -> str | None:
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the running job only if all of it is known."""
        if action == "take" and parameters == ("running",):
            return self.draft.sheet is not None and self.draft.sheet.whole
        return super().check_action(action, parameters)

    def take(self, text: str, stored: bool = True) -> None:
        """Show another job.

        Args:
            text: Its YAML.
            stored: Whether it is stored elsewhere too.
        """
        if stored:
            self.stored = text
        self.draft.take(text)
        self.changed()
        if self.as_yaml or not self.form.fill(self.draft.fields()):
            self._show_yaml(True)

    def action_take(self, which: str) -> None:
        """Load the default job, the job for rating by hand, or the running one."""
        if (sheet := self.draft.sheet) is not None:
            texts = {"default": sheet.default, "hand": sheet.hand, "running": sheet.running}
            if texts[which]:
                self.take(texts[which])

    def action_preset(self, name: str) -> None:
        """Put the values of a preset into the fields."""
        if not PRESETS[name].values:
            self.action_take(name)
            return
        self.read_input()
        if (fields := self.draft.fields()) is not None:
            self.draft.edit({**fields, **PRESETS[name].values})
            self.take(self.draft.text, stored=False)

    def action_edit(self) -> None:
        """Focus the fields, or the text."""
        if self.as_yaml:
            self.area.focus()
        else:
            self.form.edit()

    def action_yaml(self) -> None:
        """Switch between fields and the whole YAML."""
        if not self.as_yaml:
            self.draft.check()  # the text shows the error of an invalid field too
            self._show_yaml(True)
        elif self.read_valid() and self.form.fill(self.draft.fields()):
            self._show_yaml(False)

    def _show_yaml(self, shown: bool) -> None:
        self.as_yaml, area = shown, self.area
        if shown and area.text != self.draft.text:
            with self.prevent(TextArea.Changed):
                area.text = self.draft.text
        area.display, self.form.display = shown, not shown
        self.screen.set_class(shown, "-yaml")
        self.about = "Esc leaves the text" if shown else ""
        self.changed()
        (area if shown else self).focus()

    def read_input(self) -> None:
        """Put what was typed into the draft."""
        if self.as_yaml:
            self.draft.take(self.area.text)
        else:
            self.draft.edit(self.form.values())
        self.changed()

    def read_valid(self) -> bool:
        """Put what was typed into the draft; focus the error and return False when invalid."""
        self.read_input()
        wrong, line = self.draft.wrong, self.draft.wrong_line
        if isinstance(wrong, FieldError):
            self.form.edit(wrong.field)
        elif wrong is not None and self.as_yaml and line:
            self.area.move_cursor((line - 1, 0))
            self.area.focus()
        return wrong is None

    def on_descendant_focus(self) -> None:
        """Show the help of the field."""
        self.changed()

    def on_descendant_blur(self) -> None:
        """Show the presets again."""
        self.changed()

    def on_job_form_edited(self) -> None:
        """Put the fields into the draft."""
        self.read_input()

    @work(group="yaml", exclusive=True, exit_on_error=False)
    async def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Check the YAML once typing pauses."""
        if self.as_yaml and event.text_area.text != self.draft.text:
            await asyncio.sleep(CHECK_DELAY)
            self.read_input()

    def on_input_submitted(self) -> None:
        """Leave the fields on Enter; it neither saves nor applies."""
        self.focus()

    @work(group="editor", exclusive=True, exit_on_error=False)
    async def action_editor(self) -> None:
        """Open the YAML in the operator's own editor."""
        try:
            self.take(await edit_text(self.host, self.draft.text, ".yaml"), stored=False)
        except EditorError as error:
            self.host.say(str(error), "error")


class JobScreen(ConsoleScreen):
    """Edits one job; it is checked before it is sent."""

    area: ClassVar[str] = "Job"
    shows_texts: ClassVar[bool] = False
    help_text: ClassVar[str] = (
        "The job the engine starts with. Below: the changes against the server's current job, "
        "and the source of that job. To apply it, the engine is stopped, stays OFFLINE for some "
        "seconds (a late message of its trainer would end the new start), gets the job and "
        "starts. An OFFLINE engine starts at once."
    )
    AUTO_FOCUS: ClassVar[str | None] = "JobEditor"
    keeps_focus: ClassVar[bool] = True
    first_keys: tuple[str, ...] = ("edit", "yaml", "save", "apply")
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("s,ctrl+s", "save", "Save", "job.save", "Save it for all later starts"),
        ("a", "apply", "Apply", "job.apply", "Stop, wait, send the job, start; asks first"),
        ("A", "apply(True)", "To all", "job.apply_all", "The same job for every server; asks once"),
        ("escape", "leave", "Back", "job.leave"),
    )

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._sent_at = 0.0
        self.editor = JobEditor()

    def compose_body(self) -> ComposeResult:
        yield TextPane(id="job-head")
        with Container(id="job-top"):
            yield self.editor
            yield TextPane(id="job-about")
        with Horizontal(id="job-body"), VerticalScroll(id="job-scroll", can_focus=False):
            yield TextPane(id="job-diff")

    def on_mount(self) -> None:
        """Read the server's jobs."""
        self._read()

    @property
    def target_server(self) -> str | None:
        return self._server

    @work(group="job", exclusive=True, exit_on_error=False)
    async def _read(self, saved: str | None = None) -> None:
        """Read the server's jobs; show the next one unless the operator has typed another."""
        editor, draft = self.editor, self.editor.draft
        try:
            draft.sheet = await self.session.proxy.job(self._server)
        except AjetError as error:
            editor.about = f"The job cannot be read: {error}"
        else:
            if not draft.text or (draft.text == saved and draft.shows_secrets):
                editor.take(draft.sheet.next)
            else:
                draft.check()
        self._paint()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the state; read the job again when it was sent or saved."""
        own = f"server:{self._server}"
        server = self.session.state.servers.get(self._server)
        sent = server.job if server is not None else None
        if own in dirty and self.editor.draft.sheet is not None and sent is not None:
            if sent.at != self._sent_at:
                self._read()
            self._sent_at = sent.at
        if not dirty.isdisjoint({"*", "clock", own}):
            self._paint()

    def on_key_area_changed(self) -> None:
        """Show the draft, its changes and its error."""
        self._paint()

    def _paint(self) -> None:
        if not self.is_mounted:
            return
        self.query_one("#job-head", TextPane).show_lines(self._head())
        editor, draft = self.editor, self.editor.draft
        field = draft.wrong.field if isinstance(draft.wrong, FieldError) else ""
        editor.form.mark(frozenset(change.path for change in draft.changes), field)
        named = (self.focused.id or "").removeprefix("job-") if self.focused is not None else ""
        text, tone = editor.about, "$muted"
        if draft.error_text:
            text, tone = f"✖ {draft.error_text}", "$reward-down"
        help_of, roomy = BY_NAME.get(named), self.has_class("-roomy")
        presets = roomy or not (text or help_of or self.size.height < _ROWS_OF_PRESETS)
        self.query_one("#job-about", TextPane).show(
            (text, tone, help_of, roomy, presets),
            lambda width: [
                *(((f" {line}", tone),) for line in wrapped(text, width - 2) if text),
                *(
                    help_lines(help_of, width, whole=roomy)
                    if help_of and (roomy or not text)
                    else ()
                ),
                *(preset_lines(width) if presets else ()),
            ],
        )
        sheet, changes, notices = draft.sheet, tuple(draft.changes), draft.notices

        def lines(width: int) -> list[Line]:
            if sheet is None:
                return []
            return [*notice_lines(notices, width), *diff_lines(changes, sheet, width)]

        source = (id(sheet), changes, notices, editor.as_yaml)
        self.query_one("#job-diff", TextPane).show(source, lines)
        self.refresh_bindings()

    def _head(self) -> list[Line]:
        state, sheet = self.session.state, self.editor.draft.sheet
        name = (one_line(self._server, 30), f"bold {server_color(state, self._server)}")
        head: Line = ((" Job of ", "$muted"), name)
        if (server := state.servers.get(self._server)) is not None:
            word, tone = state_word(as_ended(server, self.session), self.session.as_of)
            head = (*head, ("  ", ""), (word, f"bold {tone}"))
        width = max(20, self.size.width - 2)
        return [head, *(source_lines(sheet, width) if sheet is not None else ())]

    # --- commands ----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        unread = self.session.read_only or self.editor.draft.sheet is None
        if action in ("save", "apply") and unread:
            return False
        if action == "apply" and not may_send(self.session, "engine.apply", server=self._server):
            return False
        return parameters != (True,) or len(self.session.state.servers) > 1

    @work(group="command", exit_on_error=False)
    async def action_save(self) -> None:
        """Save the job for the next start."""
        if not self.editor.read_valid():
            return
        draft = self.editor.draft
        if await self.host.send_command("engine.job", server=self._server, job=draft.text):
            self.editor.stored = draft.base = draft.text
            self._read(draft.text)

    @work(group="command", exit_on_error=False)
    async def action_apply(self, everywhere: bool = False) -> None:
        """Apply the job, on this server or on every one."""
        if not self.editor.read_valid():
            return
        from console.models.job_form import describe_changes, first_job_text

        draft, servers = self.editor.draft, self.session.state.servers
        names = list(servers) if everywhere else [self._server]
        cost = loss_of(self.session, "engine.apply", tuple(names))
        where = one_line(names[0], 30) if len(names) == 1 else plural(len(names), "server")
        first = any(name in servers and servers[name].job is None for name in names)
        detail = draft.first_job() if first else ""
        body = f"{describe_changes(draft.changes)}\n\n{cost}"
        if detail:
            body = f"{cost}\n\n{first_job_text(detail)}"
        if not await self.host.confirm(f"Apply the job to {where}?", body, "Apply", detail):
            return
        for name in names:
            self.host.run_command("engine.apply", server=name, job=draft.text)
        if self.is_attached:
            self.dismiss()

    def action_leave(self) -> None:
        """Leave the field, else the screen."""
        if self.focused not in (None, self.editor):
            self.editor.focus()
        elif self.may_go():
            self.dismiss()

    def may_go(self) -> bool:
        """Return whether nothing would be lost; otherwise ask, and close on confirmation."""
        if self.session.read_only or self.editor.draft.sheet is None:
            return True
        self.editor.read_input()
        lost = self.editor.draft.differs(self.editor.stored)
        if lost:
            self._leave_after_question()
        return not lost

    @work(group="question", exclusive=True, exit_on_error=False)
    async def _leave_after_question(self) -> None:
        """Close the screen once the operator has confirmed the loss."""
        title = f"Leave the job of {one_line(self._server, 30)}?"
        body = "Your changes are neither saved (s) nor applied (a): they would be lost."
        if await self.host.confirm(title, body, "Leave"):
            self.dismiss()
