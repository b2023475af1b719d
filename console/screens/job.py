"""The job of one server: fields or YAML, what it changes, saved and put into force."""

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import TextArea

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.job_commands import loss_of_all
from console.models.job_fields import FieldError
from console.screens.base import ConsoleScreen
from console.screens.start_question import first_words
from console.text.contact import as_ended
from console.text.format import plural, state_word
from console.text.lines import Line
from console.text.server_color import server_color
from console.text.wrap import wrapped
from console.views.job import changes_said, diff_lines, notice_lines, source_lines
from console.widgets.editor import EditorError, edit_text
from console.widgets.job_form import JobForm
from console.widgets.pane import Pane

CHECK_DELAY = 0.3
"""Seconds after the last key before a YAML text is looked at."""
WRITES = frozenset({"save", "apply"})


class JobScreen(ConsoleScreen):
    """Edits one job; nothing leaves this screen before it was checked."""

    area: ClassVar[str] = "Job"
    help_text: ClassVar[str] = (
        "What the engine is started with. e goes to the fields, Esc leaves them; y shows the whole "
        "YAML, o opens it in your own editor. Below: what it changes against the job the server "
        "has, and where that is known from. s saves it: every later start takes it. a applies it: "
        "the engine is stopped, seen OFFLINE for some seconds (a late word of its trainer would "
        "end a new start), sent the job and started, behind one question that names the loss. "
        "An engine that is OFFLINE is started at once."
    )
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit", id="job.edit", tooltip="Go to the fields, or into the YAML"),
        Binding("y", "yaml", "YAML", id="job.yaml", tooltip="Fields or the whole YAML"),
        Binding(
            "o", "editor", "Editor", show=False, id="job.editor", tooltip="The YAML in $EDITOR"
        ),
        Binding("s,ctrl+s", "save", "Save", id="job.save", tooltip="The next start takes it"),
        Binding("a", "apply", "Apply", id="job.apply", tooltip="Stop, wait, send, start; asks"),
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
            tooltip="For rating by hand: one task a step",
        ),
        Binding("u", "take('running')", "Undo", id="job.running", tooltip="The job the server has"),
        Binding("escape", "leave", "Back", id="job.leave"),
    ]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        from console.models.job_draft import JobDraft  # it loads the protocol's package

        self._draft = JobDraft()
        self._yaml = False
        self._about = ""
        self._sent_at = 0.0
        self._kept = ""
        """A text that is kept elsewhere: what differs from it would be lost."""

    def compose_body(self) -> ComposeResult:
        """Head, form or text, one line of help or error, changes and notices."""
        yield Pane(id="job-head")
        yield JobForm()
        yield TextArea("", show_line_numbers=True, soft_wrap=False, compact=True, id="job-yaml")
        yield Pane(id="job-about")
        with Horizontal(id="job-body"), VerticalScroll(id="job-scroll", can_focus=False):
            yield Pane(id="job-diff")

    def on_mount(self) -> None:
        """Read what is known of the server's jobs."""
        self.query_one("#job-yaml").display = False
        self._read()

    @property
    def target_server(self) -> str | None:
        """The server whose job it is."""
        return self._server

    # --- reading -----------------------------------------------------------------------------

    @work(group="job", exclusive=True, exit_on_error=False)
    async def _read(self, saved: str | None = None) -> None:
        try:
            sheet = await self.session.job(self._server)
        except AjetError as error:
            self._about = f"The job cannot be read: {error}"
            self._paint()
            return
        draft = self._draft
        draft.sheet = sheet
        if not draft.text or (draft.text == saved and draft.shows_secrets):
            self._take(sheet.saved or sheet.default)
        else:
            draft.check()
            self._paint()

    def _take(self, text: str, kept: bool = True) -> None:
        """Show another job; `kept` when it can be had again."""
        if kept:
            self._kept = text
        self._draft.take(text)
        self._paint()
        if self._yaml or not self.query_one(JobForm).fill(self._draft.fields()):
            self._show_yaml(True)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """The head follows the server; a job that was sent or saved is read again."""
        if "*" in dirty or f"server:{self._server}" in dirty or "clock" in dirty:
            self._paint_head()
            self.refresh_bindings()
        if f"server:{self._server}" in dirty and self._draft.sheet is not None:
            server = self.session.state.servers.get(self._server)
            if server is not None and server.job is not None and server.job.at != self._sent_at:
                self._sent_at = server.job.at
                self._read()
        if "*" in dirty:
            self._paint()

    def _paint_head(self) -> None:
        server = self.session.state.servers.get(self._server)
        width = max(20, self.size.width - 2)
        color = server_color(self.session.state, self._server)
        head: Line = ((" Job of ", "$muted"), (one_line(self._server, 30), f"bold {color}"))
        if server is not None:
            word, tone = state_word(as_ended(server, self.session), self.session.as_of)
            head = (*head, ("  ", ""), (word, f"bold {tone}"))
        lines = [head]
        if self._draft.sheet is not None:
            lines += source_lines(self._draft.sheet, width)
        self.query_one("#job-head", Pane).show_lines(lines)

    def _paint(self) -> None:
        if not self.is_mounted:
            return
        self._paint_head()
        draft = self._draft
        field = draft.wrong.field if isinstance(draft.wrong, FieldError) else ""
        self.query_one(JobForm).mark(frozenset(one.path for one in draft.changes), field)
        said = f"✖ {draft.said}" if draft.said else self._about
        tone = "$reward-down" if draft.said else "$muted"
        self.query_one("#job-about", Pane).show(
            (said, tone),
            lambda width: [((f" {line}", tone),) for line in wrapped(said, width - 2)],
        )
        sheet, changes, notices = draft.sheet, tuple(draft.changes), draft.notices
        self.query_one("#job-diff", Pane).show(
            (id(sheet), changes, notices, self._yaml),
            lambda width: (
                [*notice_lines(notices, width), *diff_lines(changes, sheet, width)]
                if sheet is not None
                else []
            ),
        )
        self.refresh_bindings()

    # --- editing -----------------------------------------------------------------------------

    def on_job_form_entered(self, event: JobForm.Entered) -> None:
        """Say what the field is for."""
        self._about = f"{event.field.label}: {event.field.about}"
        self._paint()

    def on_job_form_edited(self) -> None:
        """Put the fields into the job, and look at it."""
        self._draft.edit(self.query_one(JobForm).values())
        self._paint()

    @work(group="yaml", exclusive=True, exit_on_error=False)
    async def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Look at the YAML once the typing rests."""
        if self._yaml and event.text_area.text != self._draft.text:
            await asyncio.sleep(CHECK_DELAY)
            self._catch_up()

    def on_input_submitted(self) -> None:
        """Enter in a field leaves the form; saving and applying are keys of their own."""
        self.set_focus(None)

    def action_edit(self) -> None:
        """Go to the fields, or into the text."""
        if self._yaml:
            self.query_one("#job-yaml", TextArea).focus()
        else:
            self.query_one(JobForm).edit()

    def action_yaml(self) -> None:
        """Fields or the whole YAML."""
        if not self._yaml:
            self._draft.check()  # what a field cannot have stays behind with it
            self._show_yaml(True)
        elif self._caught_up() and self.query_one(JobForm).fill(self._draft.fields()):
            self._show_yaml(False)

    def _show_yaml(self, shown: bool) -> None:
        self._yaml = shown
        area = self.query_one("#job-yaml", TextArea)
        if shown and area.text != self._draft.text:
            with self.prevent(TextArea.Changed):
                area.text = self._draft.text
        area.display = shown
        self.query_one(JobForm).display = not shown
        self._about = "Esc leaves the text" if shown else ""
        self._paint()
        if shown:
            area.focus()
        else:
            self.set_focus(None)

    def _catch_up(self) -> None:
        """Take what was typed just now."""
        if self._yaml:
            self._draft.take(self.query_one("#job-yaml", TextArea).text)
            self._paint()
        else:
            self.on_job_form_edited()

    def _caught_up(self) -> bool:
        """The same; False, with the cursor at the fault, when it cannot be sent."""
        self._catch_up()
        wrong, line = self._draft.wrong, self._draft.wrong_line
        if isinstance(wrong, FieldError):
            self.query_one(JobForm).edit(wrong.field)
        elif wrong is not None and self._yaml and line:
            area = self.query_one("#job-yaml", TextArea)
            area.move_cursor((line - 1, 0))
            area.focus()
        return wrong is None

    def action_take(self, which: str) -> None:
        """The default job, the one for rating by hand, or the one that runs."""
        sheet = self._draft.sheet
        if sheet is None:
            return
        text = {"default": sheet.default, "hand": sheet.hand, "running": sheet.running}[which]
        if text:
            self._take(text)

    @work(group="editor", exclusive=True, exit_on_error=False)
    async def action_editor(self) -> None:
        """The YAML in the operator's own editor."""
        try:
            self._take(await edit_text(self.host, self._draft.text, ".yaml"), kept=False)
        except EditorError as error:
            self.host.say(str(error), "error")

    # --- orders ------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what makes sense now."""
        server = self.session.state.servers.get(self._server)
        if action in WRITES and (self.session.read_only or self._draft.sheet is None):
            return False
        if action == "apply":
            if server is None or server.state == "OBSERVING":
                return False
            return parameters != (True,) or len(self.session.state.servers) > 1
        if action == "take" and parameters == ("running",):
            return self._draft.sheet is not None and self._draft.sheet.whole
        return True

    @work(group="command", exit_on_error=False)
    async def action_save(self) -> None:
        """Keep it for the next start."""
        if not self._caught_up():
            return
        if await self.host.order("engine.job", server=self._server, job=self._draft.text):
            self._kept = self._draft.base = self._draft.text
            self._read(self._draft.text)

    @work(group="command", exit_on_error=False)
    async def action_apply(self, everywhere: bool = False) -> None:
        """Put it into force, here or on every server."""
        if not self._caught_up():
            return
        names = list(self.session.state.servers) if everywhere else [self._server]
        cost = loss_of_all(self.session, "engine.apply", tuple(names))
        body = f"{changes_said(self._draft.changes)}\n\n{cost}"
        where = one_line(names[0], 30) if len(names) == 1 else plural(len(names), "server")
        known = [self.session.state.servers.get(name) for name in names]
        first = any(one is not None and one.job is None for one in known)
        model, detail = self._draft.first_job() if first else ("", "")
        if detail:
            body = f"{cost}\n\n{first_words(model)}"
        if not await self.host.confirm(f"Apply the job to {where}?", body, "Apply", detail):
            return
        for name in names:
            self.run_command("engine.apply", server=name, job=self._draft.text)
        if self.is_attached:
            self.dismiss()

    def action_leave(self) -> None:
        """Out of a field, else back to the engines."""
        if self.focused is not None:
            self.set_focus(None)
        elif self.may_go():
            self.dismiss()

    def may_go(self) -> bool:
        """At once while nothing would be lost; else it asks."""
        if self.session.read_only or self._draft.sheet is None:
            return True
        self._catch_up()
        lost = self._draft.differs(self._kept)
        if lost:
            body = "What was changed here is neither saved (s) nor applied (a): it would be lost."
            self.leave_after(f"Leave the job of {one_line(self._server, 30)}?", body)
        return not lost
