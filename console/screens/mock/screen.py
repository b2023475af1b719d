"""Mock user screen: sends the questions of a dataset through the fake vLLM."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from ajet_swarm.common.text import plain
from console.models.alerts import stall_words
from console.models.preview import previews
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.screens.mock.form import MockFieldError, MockForm
from console.screens.mock.picker import DatasetPicker
from console.screens.mock.preview import DatasetPreview
from console.screens.mock.text import progress_line, result_line, summary_lines
from console.screens.progress.model import mock_start_args, pause_text
from console.session.command_plans import may_send
from console.session.mock_facts import rows_done
from console.text.lines import EMPTY
from console.text.wrap import wrapped
from console.ui.keys import keys
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane, centred
from core.events import MockRowDone
from core.state import Mock, State

_PREVIEW_SECONDS = 5.0
"""Seconds a start waits for the preview of its dataset."""
_WRITING = frozenset({"start", "start_over", "send"})
"""Actions that a read-only console does not offer."""


class MockScreen(ConsoleScreen):
    """Form, progress, results, and the errors of the dataset."""

    area: ClassVar[str] = "Mock user"
    help_text: ClassVar[str] = (
        "The mock user sends the rows of a dataset (JSONL, JSON, CSV, Parquet, a Hugging Face "
        "folder) as an application would. In the fields letters are text; Enter keeps the text of "
        "one, Esc restores the previous text. In flight and Pace: each request waits for the one "
        "before. Rate: that many "
        "a second, regardless of the number in flight. Seed shuffles each pass. Side sends only a "
        "part, always the same rows. A new start with the same dataset continues where the last "
        "one stopped and repeats no row; n starts over. Enter on a row opens its group."
    )
    AUTO_FOCUS = ""
    spare_keys: ClassVar[tuple[str, ...]] = ("start_over",)
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("s", "start", "Start", "mock.start", "Send the dataset's rows"),
            ("p", "send('mock.pause')", "Pause", "mock.pause", "Send no more rows for now"),
            ("r", "send('mock.resume')", "Resume", "mock.resume", "Continue sending"),
            ("k", "send('mock.stop')", "Stop", "mock.stop", "Stop after the requests in flight"),
            ("o", "pick", "Dataset", "mock.pick", "Pick a dataset and preview its rows"),
            ("e", "edit", "Edit", "mock.edit", "Go to the fields"),
        ),
        *keys(
            ("n", "start_over", "Start over", "mock.anew", "Start over instead of continuing"),
            ("escape", "leave_form", "Leave the fields", "mock.leave"),
            shown=False,
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._previewed: tuple[str, str] | None = None
        self._filled = ""
        self._invalid_field = ""
        """The field that prevented the last start."""

    def compose_body(self) -> ComposeResult:
        yield TextPane(id="mock-summary")
        yield TextPane(id="mock-bar")
        yield MockForm()
        yield TextPane(id="mock-error")
        opens = "Group", "The group of this row"
        with Horizontal(id="mock-body"):
            yield ItemList(id="mock-results", newest_first=True, opens=opens, letters=False)
            yield DatasetPreview(id="mock-side")

    def on_mount(self) -> None:
        """Preview the shipped questions."""
        self._preview()

    @property
    def _results(self) -> ItemList:
        return self.query_one("#mock-results", ItemList)

    @property
    def _side(self) -> DatasetPreview:
        return self.query_one(DatasetPreview)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed; a vote can end what open ratings hold up."""
        painted = {"*", "mock", "clock", "proxy", "children", "alerts", "progress"}
        if dirty.isdisjoint(painted | {"groups"}):
            return
        session, state = self.session, self.session.state
        mock, now, alive = state.mock, session.now(), session.mock_running
        width, stall = max(20, self.size.width - 2), stall_words(state, now)
        can_start, pause = not session.read_only, pause_text(session)
        self.query_one("#mock-summary", TextPane).show_lines(
            summary_lines(mock, now, width, alive, can_start, stall, pause)
        )
        if dirty.isdisjoint(painted):
            return
        self.refresh_bindings()
        bar = self.query_one("#mock-bar", TextPane)
        bar.display = mock is not None
        bar.show_lines([progress_line(mock, width)])
        form = self.query_one(MockForm)
        self.set_class(alive and not form.has_focus_within, "-running")
        self._paint_results(mock)
        if mock is not None and mock.mock_id != self._filled:
            self._filled = mock.mock_id
            form.fill(mock)
            self._results.action_edge(0)
        if not dirty.isdisjoint({"*", "mock", "children"}):
            problems = tuple(mock.problems) if mock is not None else ()
            self.set_class(bool(problems), "-problems")
            self._side.show_problems(problems, mock.dataset if mock is not None else "")

    def _paint_results(self, mock: Mock | None) -> None:
        """List the rows that were sent; before the first run there is only the preview."""
        results, groups = self._results, self.session.state.groups
        if mock is None and results.has_focus:
            self.set_focus(None)
        self.set_class(mock is None, "-fresh")
        results.display = mock is not None
        if mock is not None and self.focused is None:
            results.focus()
        rows = mock.rows[::-1] if mock is not None else []

        def items(width: int) -> list[ListItem]:
            if not rows:
                text = "Rows that were sent appear here, newest first."
                return [ListItem("", (EMPTY, centred(text, width)))]
            return [
                ListItem(_key(row), (result_line(row, width, groups.get(row.group_id)),))
                for row in rows
            ]

        results.show_items(tuple(items(max(1, results.size.width))), items)

    # --- the form ----------------------------------------------------------------------------

    def on_mock_form_edited(self, event: MockForm.Edited) -> None:
        """Preview another file once typing pauses."""
        self._invalid_field = ""
        self._show_error("")
        self._preview()

    def _preview(self) -> None:
        values = self.query_one(MockForm).values()
        source = (values["dataset"].strip(), values["columns"].strip())
        if source != self._previewed:
            self._previewed = source
            self._side.load(partial(previews, *source, self.session.home))

    def _show_error(self, text: str, tone: str = "$reward-down") -> None:
        pane = self.query_one("#mock-error", TextPane)
        pane.display = bool(text)
        lines = wrapped(plain(text), max(20, self.size.width - 4)) if text else []
        pane.show_lines([((f" {line}", tone),) for line in lines])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Leave the form on Enter; another key starts the run."""
        event.stop()
        self._leave()

    def action_edit(self) -> None:
        """Focus the fields, or the invalid one."""
        self.remove_class("-running")
        self.query_one(MockForm).edit(self._invalid_field or "dataset")

    def action_leave_form(self) -> None:
        """Restore the text of the field and leave the form."""
        self.query_one(MockForm).put_back()
        self._leave()

    def _leave(self) -> None:
        results = self._results
        self.set_focus(results if results.display else None)
        self.set_class(self.session.mock_running, "-running")

    @work(group="pick", exclusive=True, exit_on_error=False)
    async def action_pick(self) -> None:
        """Pick a dataset from a list with previews."""
        form = self.query_one(MockForm)
        columns = form.values()["columns"].strip()
        picked = await self.app.push_screen_wait(DatasetPicker(self.session.home, columns))
        if picked is not None:
            form.put("dataset", picked)
        self._leave()

    # --- results -----------------------------------------------------------------------------

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the group of a row."""
        state = self.session.state
        rows = state.mock.rows[::-1] if state.mock is not None else []
        groups = {_key(row): group_id for row in rows if (group_id := _group_of(row, state))}
        if event.key in groups:
            self.host.push_screen(GroupScreen(groups[event.key], [*groups.values()]))
        elif event.key:
            why = "There is no group for this row: it went to another target, or never arrived"
            self.host.say(why, "warning")

    # --- commands ----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now; none that writes on a read-only console."""
        if action in _WRITING and self.session.read_only:
            return False
        alive = self.session.mock_running
        match action:
            case "start" | "pick":
                return not alive
            case "start_over":
                return not alive and self.session.state.mock is not None
            case "send":
                return alive and may_send(self.session, str(parameters[0]))
        return True

    def action_start(self, **options: bool) -> None:
        """Check the fields, then start the run."""
        try:
            args = self.query_one(MockForm).arguments()
        except MockFieldError as error:
            self._show_refusal(error.field, str(error))
            return
        self._preview()  # the preview may not include the last keystrokes yet
        if args.get("dataset") and not self._side.loaded:
            self._start_after_preview(**options)
        else:
            self._send(args, **options)

    @work(group="start_over", exclusive=True, exit_on_error=False)
    async def action_start_over(self) -> None:
        """Start over, with rows that were sent before."""
        mock = self.session.state.mock
        done = rows_done(mock) if mock is not None else 0
        body = (
            f"Rows that earlier starts sent are sent again, including {done} of the last run. "
            "Their groups and results stay."
        )
        if await self.host.confirm("Start over?", body, "Start over"):
            self.action_start(restart=True)

    @work(group="start", exclusive=True, exit_on_error=False)
    async def _start_after_preview(self, **options: bool) -> None:
        """Start once the preview is loaded; refuse a dataset that cannot be read."""
        form = self.query_one(MockForm)
        typed = form.values()
        self._show_error("Checking the dataset …", "$muted")
        with suppress(TimeoutError):  # e.g. an unreachable share: the mock user reports the cause
            async with asyncio.timeout(_PREVIEW_SECONDS):
                await self._side.wait_until_loaded()
        if form.values() == typed:
            self._send(form.arguments(), **options)

    @work(group="send", exclusive=True, exit_on_error=False)
    async def _send(self, args: dict[str, Any], **options: bool) -> None:
        """Send the command; ask first while training is paused."""
        preview = self._side.preview
        if preview.error and args.get("dataset", "") == preview.path:
            self._show_refusal("dataset", f"The dataset {preview.error}")
            return
        self._show_error("")
        agreed = await mock_start_args(self.host, **args, **options)
        if agreed is not None:
            self.host.run_command("mock.start", **agreed)

    def _show_refusal(self, field: str, why: str) -> None:
        """Show why the run does not start; the focus stays, and `e` leads to the field."""
        self._invalid_field = field
        self._show_error(f"{why} · e goes to the field")

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_send(self, command: str) -> None:
        """Pause or resume the run; stop it after a question."""
        body = "It stops after the requests in flight; the next start goes on where it stopped."
        if command != "mock.stop" or await self.host.confirm("Stop the mock user?", body, "Stop"):
            self.host.run_command(command)


def _key(row: MockRowDone) -> str:
    return f"{row.row_id} {row.at}"


def _group_of(row: MockRowDone, state: State) -> str:
    """Return the group of a row: its own, else the newest of a row with this id; else empty."""
    groups = reversed(state.groups.values())
    newest = (group.group_id for group in groups if group.row_id == row.row_id)
    return row.group_id or next(newest, "")
