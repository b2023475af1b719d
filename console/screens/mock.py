"""The mock user: asks the questions of a dataset through the fake vLLM."""

import asyncio
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from console.mock_view import (
    problem_lines,
    progress_text,
    result_lines,
    share,
    summary_lines,
)
from console.preview import Preview, read_preview
from console.rate_view import bar_pieces
from console.screens.base import ConsoleScreen
from console.screens.verbs import WRITING
from console.views import EMPTY, Line, fit
from console.widgets.mock_form import FieldError, MockForm
from console.widgets.pane import Pane, centred
from console.wrap import wrapped
from core.state import Mock
from core.text import one_line, plain

PREVIEW_DELAY = 0.25
"""Seconds after the last key before a file is looked at."""


class MockScreen(ConsoleScreen):
    """Form, progress, results, and what is wrong with the dataset."""

    area: ClassVar[str] = "Mock user"
    help_text: ClassVar[str] = (
        "The mock user asks the rows of a JSONL file ({query, answer} or AgentJet tasks) as an "
        "application would. Started again with the same file it goes on where it stopped. "
        "e goes to the fields, Esc leaves them; in a field letters are text."
    )
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "Start", id="mock.start", tooltip="Ask the dataset"),
        Binding("p", "pause", "Pause", id="mock.pause", tooltip="Send nothing more for now"),
        Binding("r", "resume", "Resume", id="mock.resume", tooltip="Go on"),
        Binding("k", "stop", "Stop", id="mock.stop", tooltip="End after what is in flight"),
        Binding("e", "edit", "Edit", id="mock.edit", tooltip="Go to the fields"),
        Binding("escape", "leave_form", "Leave the fields", show=False, id="mock.leave"),
        Binding("up", "scroll_results(-1)", "Up", show=False),
        Binding("down", "scroll_results(1)", "Down", show=False),
        Binding("pageup", "scroll_results(-10)", "Page up", show=False),
        Binding("pagedown,space", "scroll_results(10)", "Page down", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._preview = Preview()
        self._asked_for = ""

    def compose_body(self) -> ComposeResult:
        """Summary and bar, form, results beside the preview."""
        yield Pane(id="mock-summary")
        yield Pane(id="mock-bar")
        yield MockForm()
        yield Pane(id="mock-error")
        with Horizontal(id="mock-body"):
            yield Pane(id="mock-results")
            yield Pane(id="mock-side")

    def on_mount(self) -> None:
        """Look at the questions that come with the program."""
        self._look("")

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed."""
        if dirty.isdisjoint({"*", "mock", "clock", "proxy", "children"}):
            return
        self.refresh_bindings()
        mock, now = self.session.state.mock, self.session.now()
        width = max(20, self.size.width - 2)
        self.query_one("#mock-summary", Pane).show_lines(
            summary_lines(mock, now, width, self.session.mock_lives)
        )
        self.query_one("#mock-bar", Pane).show_lines([progress_line(mock, width)])
        if dirty.isdisjoint({"*", "mock"}):
            return
        results = self.query_one("#mock-results", Pane)
        key = (mock.mock_id, mock.done, len(mock.rows)) if mock is not None else None
        results.show((key,), lambda room: result_lines(mock, room) or _no_results(room))
        self._show_side()

    def _show_side(self) -> None:
        mock, preview = self.session.state.mock, self._preview
        problems = tuple(mock.problems) if mock is not None else ()
        self.query_one("#mock-side", Pane).show(
            (problems, preview), lambda room: side_lines(problems, preview, room)
        )

    # --- the form ----------------------------------------------------------------------------

    def on_mock_form_edited(self, event: MockForm.Edited) -> None:
        """Look at another file, once the typing rests."""
        self._say_error("")
        path = self.query_one(MockForm).values()["dataset"].strip()
        if path != self._asked_for:
            self._look(path)

    @work(group="preview", exclusive=True, exit_on_error=False)
    async def _look(self, path: str) -> None:
        self._asked_for = path
        if path:
            await asyncio.sleep(PREVIEW_DELAY)
        preview = await asyncio.to_thread(read_preview, path)
        if path == self._asked_for:
            self._preview = preview
            self._show_side()

    def _say_error(self, text: str) -> None:
        pane = self.query_one("#mock-error", Pane)
        pane.display = bool(text)
        pane.show_lines([((f" {plain(text)}", "$reward-down"),)] if text else [])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in a field leaves the form; starting is a key of its own."""
        event.stop()
        self.action_leave_form()

    def action_edit(self) -> None:
        """Go to the fields."""
        self.query_one(MockForm).edit()

    def action_leave_form(self) -> None:
        """Letters are keys again."""
        self.set_focus(None)

    # --- orders ------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what makes sense now; nothing that changes something on a read-only console."""
        if action in WRITING and self.session.read_only:
            return False
        mock = self.session.state.mock
        alive = self.session.mock_lives
        phase = mock.phase if mock is not None else ""
        match action:
            case "start":
                return not alive
            case "pause":
                return alive and phase == "running"
            case "resume":
                return alive and phase == "paused"
            case "stop":
                return alive and phase != "stopping"
        return True

    def action_start(self) -> None:
        """Check the fields, then ask the dataset."""
        try:
            args = self.query_one(MockForm).arguments()
        except FieldError as error:
            self._say_error(str(error))
            return
        if self._preview.error and args.get("dataset", "") == self._preview.path:
            self._say_error(f"The dataset {self._preview.error}")
            self.query_one(MockForm).edit()
            return
        self._say_error("")
        self.run_command("mock.start", **args)

    def action_pause(self) -> None:
        """Send nothing more until it is resumed."""
        self.run_command("mock.pause")

    def action_resume(self) -> None:
        """Go on."""
        self.run_command("mock.resume")

    def action_stop(self) -> None:
        """End after what is in flight."""
        self.run_command("mock.stop")

    def action_scroll_results(self, rows: int) -> None:
        """Scroll the results."""
        self.query_one("#mock-results", Pane).scroll_relative(y=rows, animate=False)


def progress_line(mock: Mock | None, width: int) -> Line:
    """Bar and figures; nothing before the first start."""
    if mock is None:
        return EMPTY
    label = f" {progress_text(mock)}"
    tone = "$reward-up" if mock.phase in ("running", "finished") else "$muted"
    return (*bar_pieces(share(mock), max(4, width - len(label)), tone), (label, "bold"))


def side_lines(problems: tuple[str, ...], preview: Preview, width: int) -> list[Line]:
    """Broken rows of the run, then the first rows of the dataset in the form."""
    lines = problem_lines(problems, width)
    name = one_line(preview.path, 300) or "shipped questions"
    lines.append((("First rows of ", "$heading"), (fit(name, max(8, width - 14)), "$heading")))
    if preview.error:
        lines += [((text, "$reward-down"),) for text in wrapped(preview.error, width)]
    for query, reference in preview.rows:
        lines.append((("· ", "$muted"), (fit(plain(query), width - 2), "")))
        if reference:
            lines.append((("  → ", "$muted"), (fit(plain(reference), width - 4), "$muted")))
    lines += [((fit(plain(text), width), "$warning"),) for text in preview.problems]
    return lines


def _no_results(width: int) -> list[Line]:
    return [EMPTY, centred("Rows that were asked come here, newest first.", width)]
