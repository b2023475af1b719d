"""Mock user screen: sends the questions of a dataset through the fake vLLM."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from ajet_swarm.common.text import plain
from console.models.alerts import stall_words
from console.models.app_host import AppHost
from console.models.datasets import SHIPPED, field_text
from console.models.preview import previews
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.screens.progress.model import mock_start_args, pause_text
from console.session.command_plans import may_send
from console.text.lines import EMPTY, Line, bar_pieces
from console.text.wrap import wrapped
from console.views.mock import problem_lines, progress_text, rows_done, share, summary_lines
from console.widgets.dataset_picker import DatasetPicker
from console.widgets.dataset_preview import DatasetPreview, preview_lines
from console.widgets.dataset_results import ResultList
from console.widgets.mock_form import MockFieldError, MockForm
from console.widgets.pane import TextPane
from core.events import MockRowDone
from core.state import Mock

_PREVIEW_SECONDS = 5.0
"""Seconds a start waits for the preview of its dataset."""
_WRITING = frozenset({"start", "start_over", "pause", "resume", "stop"})
"""Actions that a read-only console does not offer."""


class MockScreen(ConsoleScreen):
    """Form, progress, results, and the errors of the dataset."""

    area: ClassVar[str] = "Mock user"
    help_text: ClassVar[str] = (
        "The mock user sends the rows of a dataset (JSONL, JSON, CSV, Parquet, a Hugging Face "
        "folder) as an application would. o picks a dataset and shows its rows; e goes to the "
        "fields, where letters are text; Enter keeps the text of a field, Esc restores the "
        "previous one. In flight and Pace: each request waits for the one before. Rate: that many "
        "a second, regardless of the number in flight. Seed shuffles each pass. Side sends only a "
        "part, always the same rows. A new start with the same dataset continues where the last "
        "one stopped and repeats no row; n starts over. Enter on a row opens its group."
    )
    AUTO_FOCUS = ""
    spare_keys: ClassVar[tuple[str, ...]] = ("start_over",)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "start", "Start", id="mock.start", tooltip="Send the dataset's rows"),
        Binding("p", "pause", "Pause", id="mock.pause", tooltip="Send no more rows for now"),
        Binding("r", "resume", "Resume", id="mock.resume", tooltip="Continue sending"),
        Binding("k", "stop", "Stop", id="mock.stop", tooltip="Stop after the requests in flight"),
        Binding(
            "o", "pick", "Dataset", id="mock.pick", tooltip="Pick a dataset and preview its rows"
        ),
        Binding("e", "edit", "Edit", id="mock.edit", tooltip="Go to the fields"),
        Binding(
            "n",
            "start_over",
            "Start over",
            show=False,
            id="mock.anew",
            tooltip="Start over instead of continuing",
        ),
        Binding("escape", "leave_form", "Leave the fields", show=False, id="mock.leave"),
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
        with Horizontal(id="mock-body"):
            yield ResultList(id="mock-results")
            yield _Side(id="mock-side")

    def on_mount(self) -> None:
        """Preview the shipped questions."""
        self._preview()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed; a vote can end what open ratings hold up."""
        painted = {"*", "mock", "clock", "proxy", "children", "alerts", "progress"}
        if dirty.isdisjoint(painted | {"groups"}):
            return
        mock, now = self.session.state.mock, self.session.now()
        alive = self.session.mock_running
        width = max(20, self.size.width - 2)
        stall = stall_words(self.session.state, now)
        self.query_one("#mock-summary", TextPane).show_lines(
            summary_lines(
                mock, now, width, alive, not self.session.read_only, stall, pause_text(self.session)
            )
        )
        if dirty.isdisjoint(painted):
            return
        self.refresh_bindings()
        bar = self.query_one("#mock-bar", TextPane)
        bar.display = mock is not None
        bar.show_lines([progress_line(mock, width)])
        form = self.query_one(MockForm)
        self.set_class(alive and not form.has_focus_within, "-running")
        self._set_fresh(mock is None)
        if mock is not None and mock.mock_id != self._filled:
            self._filled = mock.mock_id
            form.fill(mock)
        self.query_one(ResultList).take(
            mock, lambda row: self.session.state.groups.get(row.group_id)
        )
        if dirty.isdisjoint({"*", "mock", "children"}):
            return
        problems = tuple(mock.problems) if mock is not None else ()
        self.set_class(bool(problems), "-problems")
        self.query_one(_Side).show_problems(problems, mock.dataset if mock is not None else "")

    def _set_fresh(self, fresh: bool) -> None:
        """Show only the preview while there is no run."""
        results = self.query_one(ResultList)
        if fresh and results.has_focus:
            self.set_focus(None)
        self.set_class(fresh, "-fresh")
        results.display = not fresh
        if not fresh and self.focused is None:
            results.focus()

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
            self.query_one(_Side).load(partial(previews, *source, self.session.home))

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
        results = self.query_one(ResultList)
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

    def on_item_list_opened(self, event: ResultList.Opened) -> None:
        """Open the group of a row."""
        row = self.query_one(ResultList).row_of(event.key)
        group_id = self._group_of(row) if row is not None else ""
        if not group_id:
            self.notify(
                "There is no group for this row: it went to another target, or never arrived",
                severity="warning",
            )
            return
        rows = reversed(self.session.state.mock.rows) if self.session.state.mock else ()
        neighbors = [group for row in rows if (group := self._group_of(row))]
        self.host.push_screen(GroupScreen(group_id, neighbors))

    def _group_of(self, row: MockRowDone) -> str:
        groups = self.session.state.groups
        if row.group_id:
            return row.group_id
        matches = (group for group in reversed(groups.values()) if group.row_id == row.row_id)
        return next((match.group_id for match in matches), "")

    # --- commands ----------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now; none that writes on a read-only console."""
        if action in _WRITING and self.session.read_only:
            return False
        mock = self.session.state.mock
        alive = self.session.mock_running
        match action:
            case "start" | "pick":
                return not alive
            case "start_over":
                return not alive and mock is not None
            case "pause" | "resume" | "stop":
                return alive and may_send(self.session, f"mock.{action}")
        return True

    def action_start(self) -> None:
        """Check the fields, then start the run."""
        self._start()

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
            self._start(restart=True)

    def _start(self, **options: bool) -> None:
        try:
            args = self.query_one(MockForm).arguments()
        except MockFieldError as error:
            self._show_refusal(error.field, str(error))
            return
        self._preview()  # the preview may not include the last keystrokes yet
        if args.get("dataset") and not self.query_one(_Side).loaded:
            self._start_after_preview(**options)
        else:
            self._send(args, **options)

    @work(group="start", exclusive=True, exit_on_error=False)
    async def _start_after_preview(self, **options: bool) -> None:
        """Start once the preview is loaded; refuse a dataset that cannot be read."""
        form = self.query_one(MockForm)
        typed = form.values()
        self._show_error("Checking the dataset …", "$muted")
        with suppress(TimeoutError):  # e.g. an unreachable share: the mock user reports the cause
            async with asyncio.timeout(_PREVIEW_SECONDS):
                await self.query_one(_Side).wait_until_loaded()
        if form.values() == typed:
            self._send(form.arguments(), **options)

    @work(group="send", exclusive=True, exit_on_error=False)
    async def _send(self, args: dict[str, Any], **options: bool) -> None:
        """Send the command; ask first while training is paused."""
        preview = self.query_one(_Side).preview
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

    def action_pause(self) -> None:
        """Pause the run."""
        self.host.run_command("mock.pause")

    def action_resume(self) -> None:
        """Resume the run."""
        self.host.run_command("mock.resume")

    def action_stop(self) -> None:
        """Ask, then stop after the requests in flight."""
        work = _ask_and_stop(self.host)
        self.host.run_worker(work, group="question", exclusive=True, exit_on_error=False)


async def _ask_and_stop(host: AppHost) -> None:
    body = "It stops after the requests in flight; the next start goes on where it stopped."
    if await host.confirm("Stop the mock user?", body, "Stop"):
        await host.send_command("mock.stop")


class _Side(DatasetPreview):
    """Broken rows of the run, then the preview of the dataset in the form."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._problems: tuple[str, ...] = ()
        self._dataset = ""

    def show_problems(self, problems: tuple[str, ...], dataset: str) -> None:
        """Show rows that the run of `dataset` could not use."""
        self._problems, self._dataset = problems, dataset
        self.paint_preview()

    def paint_preview(self) -> None:
        problems, preview = self._problems, self.preview
        known = preview.kind or preview.error
        if preview.bad or (known and not self._is_dataset_of_run(preview.path)):
            problems = ()  # the preview lists them too, or they belong to another dataset
        self.show(
            (problems, preview),
            lambda width: [*problem_lines(problems, width), *preview_lines(preview, width)],
        )

    def _is_dataset_of_run(self, text: str) -> bool:
        """Return whether `text` of the form names the dataset of the run."""
        if text in ("", SHIPPED):
            return not field_text(self._dataset)
        named, asked = Path(text).expanduser(), Path(self._dataset)
        return named == asked if named.is_absolute() else named.name == asked.name


def progress_line(mock: Mock | None, width: int) -> Line:
    """Return bar and figures; nothing before the first start."""
    if mock is None:
        return EMPTY
    label = f" {progress_text(mock)}"
    tone = "$reward-up" if mock.phase in ("running", "finished") else "$muted"
    return (*bar_pieces(share(mock), max(4, width - len(label)), tone), (label, "bold"))
