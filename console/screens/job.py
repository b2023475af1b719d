"""The job of one server: fields or YAML, its changes, saving and applying it."""

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import TextArea

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plural
from console.models.job_fields import FieldError
from console.screens.base import ConsoleScreen
from console.screens.parts import ScreenPart, bind_actions, in_background
from console.screens.run_command import loss_of
from console.session.command_plans import may_send
from console.session.server_facts import as_ended
from console.text.format import state_word
from console.text.lines import Line
from console.text.server_color import server_color
from console.text.wrap import wrapped
from console.views.job import describe_changes, diff_lines, notice_lines, source_lines
from console.widgets.editor import EditorError, edit_text
from console.widgets.job_form import JobForm
from console.widgets.pane import TextPane

CHECK_DELAY = 0.3
"""Seconds after the last key before a YAML text is checked."""
WRITING = frozenset({"save", "apply"})


class JobEditor(ScreenPart):
    """The draft of a job, as fields or as YAML, with its changes and notices."""

    def __init__(self, screen: ConsoleScreen, server: str) -> None:
        super().__init__(screen)
        from console.models.job_form import JobDraft  # it loads the protocol's package

        self.draft = JobDraft()
        self.as_yaml = False
        self.about = ""
        """Help of the field in focus, shown while there is no error."""
        self.stored = ""
        """Text that is stored elsewhere; changes against it would be lost."""
        self._server = server

    def take(self, text: str, stored: bool = True) -> None:
        """Show another job.

        Args:
            text: Its YAML.
            stored: Whether it is stored elsewhere too.
        """
        if stored:
            self.stored = text
        self.draft.take(text)
        self.paint()
        if self.as_yaml or not self.screen.query_one(JobForm).fill(self.draft.fields()):
            self._show_yaml(True)

    # --- painting ----------------------------------------------------------------------------

    def paint_head(self) -> None:
        server = self.session.state.servers.get(self._server)
        width = max(20, self.screen.size.width - 2)
        color = server_color(self.session.state, self._server)
        head: Line = ((" Job of ", "$muted"), (one_line(self._server, 30), f"bold {color}"))
        if server is not None:
            word, tone = state_word(as_ended(server, self.session), self.session.as_of)
            head = (*head, ("  ", ""), (word, f"bold {tone}"))
        lines = [head]
        if self.draft.sheet is not None:
            lines += source_lines(self.draft.sheet, width)
        self.screen.query_one("#job-head", TextPane).show_lines(lines)

    def paint(self) -> None:
        if not self.screen.is_mounted:
            return
        self.paint_head()
        draft = self.draft
        field = draft.wrong.field if isinstance(draft.wrong, FieldError) else ""
        self.screen.query_one(JobForm).mark(
            frozenset(change.path for change in draft.changes), field
        )
        text = f"✖ {draft.error_text}" if draft.error_text else self.about
        tone = "$reward-down" if draft.error_text else "$muted"
        self.screen.query_one("#job-about", TextPane).show(
            (text, tone),
            lambda width: [((f" {line}", tone),) for line in wrapped(text, width - 2)],
        )
        sheet, changes, notices = draft.sheet, tuple(draft.changes), draft.notices
        self.screen.query_one("#job-diff", TextPane).show(
            (id(sheet), changes, notices, self.as_yaml),
            lambda width: (
                [*notice_lines(notices, width), *diff_lines(changes, sheet, width)]
                if sheet is not None
                else []
            ),
        )
        self.screen.refresh_bindings()

    # --- editing -----------------------------------------------------------------------------

    def read_form(self) -> None:
        """Put the fields into the draft and check it."""
        self.draft.edit(self.screen.query_one(JobForm).values())
        self.paint()

    def action_edit(self) -> None:
        """Focus the fields, or the text."""
        if self.as_yaml:
            self.screen.query_one("#job-yaml", TextArea).focus()
        else:
            self.screen.query_one(JobForm).edit()

    def action_yaml(self) -> None:
        """Switch between fields and the whole YAML."""
        if not self.as_yaml:
            self.draft.check()  # the text shows the error of an invalid field too
            self._show_yaml(True)
        elif self.read_valid() and self.screen.query_one(JobForm).fill(self.draft.fields()):
            self._show_yaml(False)

    def _show_yaml(self, shown: bool) -> None:
        self.as_yaml = shown
        area = self.screen.query_one("#job-yaml", TextArea)
        if shown and area.text != self.draft.text:
            with self.screen.prevent(TextArea.Changed):
                area.text = self.draft.text
        area.display = shown
        self.screen.query_one(JobForm).display = not shown
        self.about = "Esc leaves the text" if shown else ""
        self.paint()
        if shown:
            area.focus()
        else:
            self.screen.set_focus(None)

    def read_input(self) -> None:
        """Put what was typed into the draft."""
        if self.as_yaml:
            self.draft.take(self.screen.query_one("#job-yaml", TextArea).text)
            self.paint()
        else:
            self.read_form()

    def read_valid(self) -> bool:
        """Put what was typed into the draft; focus the error and return False when invalid."""
        self.read_input()
        wrong, line = self.draft.wrong, self.draft.wrong_line
        if isinstance(wrong, FieldError):
            self.screen.query_one(JobForm).edit(wrong.field)
        elif wrong is not None and self.as_yaml and line:
            area = self.screen.query_one("#job-yaml", TextArea)
            area.move_cursor((line - 1, 0))
            area.focus()
        return wrong is None

    def action_take(self, which: str) -> None:
        """Load the default job, the job for rating by hand, or the running one."""
        sheet = self.draft.sheet
        if sheet is None:
            return
        text = {"default": sheet.default, "hand": sheet.hand, "running": sheet.running}[which]
        if text:
            self.take(text)

    @in_background("editor", exclusive=True)
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
        "The job the engine starts with. e edits the fields, Esc leaves them; y shows the whole "
        "YAML, o opens it in your own editor. Below: the changes against the server's current "
        "job, and the source of that job. s saves it for all later starts. a applies it after "
        "one question that lists the loss: the engine is stopped, stays OFFLINE for some seconds "
        "(a late message of its trainer would end the new start), gets the job and starts. An "
        "OFFLINE engine starts at once."
    )
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit", id="job.edit", tooltip="Go to the fields, or into the YAML"),
        Binding("y", "yaml", "YAML", id="job.yaml", tooltip="Fields or the whole YAML"),
        Binding(
            "o", "editor", "Editor", show=False, id="job.editor", tooltip="The YAML in $EDITOR"
        ),
        Binding("s,ctrl+s", "save", "Save", id="job.save", tooltip="Save it for all later starts"),
        Binding(
            "a",
            "apply",
            "Apply",
            id="job.apply",
            tooltip="Stop, wait, send the job, start; asks first",
        ),
        Binding(
            "A",
            "apply(True)",
            "To all",
            id="job.apply_all",
            tooltip="The same job for every server; asks once",
        ),
        Binding("d", "take('default')", "Default", id="job.default", tooltip="The default job"),
        Binding(
            "h",
            "take('hand')",
            "Rating",
            id="job.hand",
            tooltip="For rating by hand: few tasks a step",
        ),
        Binding(
            "u",
            "take('running')",
            "Undo",
            id="job.running",
            tooltip="The current job of the server",
        ),
        Binding("escape", "leave", "Back", id="job.leave"),
    ]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self._sent_at = 0.0
        self.editor = JobEditor(self, server)
        bind_actions(self, self.editor)

    def compose_body(self) -> ComposeResult:
        yield TextPane(id="job-head")
        yield JobForm()
        yield TextArea("", show_line_numbers=True, soft_wrap=False, compact=True, id="job-yaml")
        yield TextPane(id="job-about")
        with Horizontal(id="job-body"), VerticalScroll(id="job-scroll", can_focus=False):
            yield TextPane(id="job-diff")

    def on_mount(self) -> None:
        """Read the server's jobs."""
        self.query_one("#job-yaml").display = False
        self._read()

    @property
    def target_server(self) -> str | None:
        return self._server

    # --- reading -----------------------------------------------------------------------------

    @work(group="job", exclusive=True, exit_on_error=False)
    async def _read(self, saved: str | None = None) -> None:
        try:
            sheet = await self.session.job(self._server)
        except AjetError as error:
            self.editor.about = f"The job cannot be read: {error}"
            self.editor.paint()
            return
        draft = self.editor.draft
        draft.sheet = sheet
        if not draft.text or (draft.text == saved and draft.shows_secrets):
            self.editor.take(sheet.next)
        else:
            draft.check()
            self.editor.paint()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the head; read the job again when it was sent or saved."""
        if "*" in dirty or f"server:{self._server}" in dirty or "clock" in dirty:
            self.editor.paint_head()
            self.refresh_bindings()
        if f"server:{self._server}" in dirty and self.editor.draft.sheet is not None:
            server = self.session.state.servers.get(self._server)
            if server is not None and server.job is not None and server.job.at != self._sent_at:
                self._sent_at = server.job.at
                self._read()
        if "*" in dirty:
            self.editor.paint()

    # --- editing -----------------------------------------------------------------------------

    def on_job_form_entered(self, event: JobForm.Entered) -> None:
        """Show the help of the field."""
        self.editor.about = f"{event.field.label}: {event.field.about}"
        self.editor.paint()

    def on_job_form_edited(self) -> None:
        """Put the fields into the draft."""
        self.editor.read_form()

    @work(group="yaml", exclusive=True, exit_on_error=False)
    async def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Check the YAML once typing pauses."""
        if self.editor.as_yaml and event.text_area.text != self.editor.draft.text:
            await asyncio.sleep(CHECK_DELAY)
            self.editor.read_input()

    def on_input_submitted(self) -> None:
        """Leave the form on Enter; it neither saves nor applies."""
        self.set_focus(None)

    # --- commands ----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        if action in WRITING and (self.session.read_only or self.editor.draft.sheet is None):
            return False
        if action == "apply":
            if not may_send(self.session, "engine.apply", server=self._server):
                return False
            return parameters != (True,) or len(self.session.state.servers) > 1
        if action == "take" and parameters == ("running",):
            return self.editor.draft.sheet is not None and self.editor.draft.sheet.whole
        return True

    @work(group="command", exit_on_error=False)
    async def action_save(self) -> None:
        """Save the job for the next start."""
        if not self.editor.read_valid():
            return
        if await self.host.send_command(
            "engine.job", server=self._server, job=self.editor.draft.text
        ):
            self.editor.stored = self.editor.draft.base = self.editor.draft.text
            self._read(self.editor.draft.text)

    @work(group="command", exit_on_error=False)
    async def action_apply(self, everywhere: bool = False) -> None:
        """Apply the job, on this server or on every one."""
        if not self.editor.read_valid():
            return
        names = list(self.session.state.servers) if everywhere else [self._server]
        cost = loss_of(self.session, "engine.apply", tuple(names))
        body = f"{describe_changes(self.editor.draft.changes)}\n\n{cost}"
        where = one_line(names[0], 30) if len(names) == 1 else plural(len(names), "server")
        known = [self.session.state.servers.get(name) for name in names]
        first = any(server is not None and server.job is None for server in known)
        detail = self.editor.draft.first_job() if first else ""
        if detail:
            from console.models.job_form import first_job_text

            body = f"{cost}\n\n{first_job_text(detail)}"
        if not await self.host.confirm(f"Apply the job to {where}?", body, "Apply", detail):
            return
        for name in names:
            self.host.run_command("engine.apply", server=name, job=self.editor.draft.text)
        if self.is_attached:
            self.dismiss()

    def action_leave(self) -> None:
        """Leave the field, else the screen."""
        if self.focused is not None:
            self.set_focus(None)
        elif self.may_go():
            self.dismiss()

    def may_go(self) -> bool:
        """Return whether nothing would be lost; otherwise ask, and close on confirmation."""
        if self.session.read_only or self.editor.draft.sheet is None:
            return True
        self.editor.read_input()
        lost = self.editor.draft.differs(self.editor.stored)
        if lost:
            body = "Your changes are neither saved (s) nor applied (a): they would be lost."
            self._leave_after(f"Leave the job of {one_line(self._server, 30)}?", body)
        return not lost

    @work(group="question", exclusive=True, exit_on_error=False)
    async def _leave_after(self, title: str, body: str) -> None:
        """Close the screen once the operator has confirmed the loss."""
        if await self.host.confirm(title, body, "Leave"):
            self.dismiss()
