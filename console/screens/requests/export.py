"""Export of groups: asks for format and file, shows the progress, and can be cancelled."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain, plural
from console.models.app_host import AppHost
from console.session.app_state import Session
from console.session.filters import Filter, parse

if TYPE_CHECKING:
    from console.export.run import ExportOptions, ExportProgress, ExportReport

log = logging.getLogger(__name__)

PAINT_SECONDS = 0.2
_HINT = "F2 other groups, ↑ ↓ format, Enter file, Enter starts, Esc cancels"


class ExportScreen(ModalScreen["ExportReport | None"]):
    """Returns the report of the export; None when it was cancelled.

    Args:
        choices: Groups that can be exported, as text and filter; the first is proposed.
        home: The home whose journal is read.
        proxy_url: Address of the proxy that the console shows.
        options: What is exported; the operator chooses groups, format and file.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="export.leave"),
        Binding("f2", "next_choice", "Other groups", id="export.groups"),
    ]
    DEFAULT_CSS = """
    ExportScreen OptionList {
        height: auto;
        max-height: 10;
        background: $surface;
        border: none;
        padding: 0;
        margin: 0 0 1 0;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(
        self,
        choices: Sequence[tuple[str, Filter]],
        home: Path,
        proxy_url: str,
        options: "ExportOptions",
    ) -> None:
        from console.export.format import find_format, format_names

        super().__init__()
        self._choices = choices
        self._choice = 0
        self._home = home
        self._proxy_url = proxy_url
        self._options = options
        self._formats = {}
        for name in format_names():
            try:
                self._formats[name] = find_format(name)
            except AjetError:
                continue  # `doctor` names a plug-in that cannot be loaded
        self._proposed = ""
        self._progress: ExportProgress | None = None
        self._exporting = False
        self._stopped = False

    def compose(self) -> ComposeResult:
        """Formats, file, progress."""
        with Vertical(classes="dialog -wide"):
            yield Static(self._title, markup=False, classes="dialog-title", id="export-groups")
            yield OptionList(
                *(
                    Option(f"{name:<11} {one_line(chosen.about, 64)}", id=name)
                    for name, chosen in self._formats.items()
                ),
                markup=False,
                compact=True,
            )
            yield Static(f"File, in {plain(str(Path.cwd()))}:", markup=False)
            yield Input(compact=True, id="export-path")
            yield Static(_HINT, markup=False, classes="dialog-hint", id="export-hint")

    def on_mount(self) -> None:
        """Propose the first format."""
        self.query_one(OptionList).highlighted = 0
        self.set_interval(PAINT_SECONDS, self._paint)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Propose a file for the format."""
        event.stop()
        if event.option.id is not None:
            self._propose(event.option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go on to the file."""
        event.stop()
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Start the export."""
        event.stop()
        if event.value.strip() and not self._exporting:
            self._exporting, self._stopped = True, False
            self.run_worker(self._export(event.value.strip()), exit_on_error=False)

    @property
    def _title(self) -> str:
        return f"Export {plain(self._choices[self._choice][0])}"

    def action_next_choice(self) -> None:
        """Choose other groups: the marked ones, those of the filter, or all."""
        if not self._exporting:
            self._choice = (self._choice + 1) % len(self._choices)
            self.query_one("#export-groups", Static).update(self._title)

    def action_leave(self) -> None:
        """Cancel; a running export ends by itself a moment later."""
        if self._exporting:
            self._stopped = True
        else:
            self.dismiss(None)

    def _chosen(self, path: str) -> "ExportOptions":
        """Return the options with the format under the cursor and a file."""
        highlighted = self.query_one(OptionList).highlighted or 0
        name = list(self._formats)[highlighted]
        where = self._choices[self._choice][1]
        return replace(self._options, format=name, out=Path(path).expanduser(), where=where)

    def _propose(self, name: str) -> None:
        path = self.query_one(Input)
        if path.value == self._proposed:
            path.value = self._proposed = f"{name}{self._formats[name].suffix}"
            path.cursor_position = len(path.value)

    async def _export(self, path: str) -> None:
        from console.export.home import export_home
        from console.export.run import ExportCancelled

        options = self._chosen(path)
        self._progress = None
        self._paint()
        try:
            report = await asyncio.to_thread(
                export_home,
                self._home,
                self._proxy_url,
                options,
                self._set_progress,
                lambda: self._stopped,
            )
        except ExportCancelled:
            self.dismiss(None)
        except AjetError as error:
            hint = " Name another file" if "exist" in error.what else f" {error.todo}"
            self._say(f"{one_line(str(error.what), 200)}: {one_line(error.where, 200)}.{hint}")
        except Exception as error:  # the worker ends here: a fault must not leave the dialog busy
            log.exception("the export failed")
            text = one_line(f"{type(error).__name__}: {error}", 200)
            self._say(f"The export failed: {text}. No file was written")
        else:
            self.dismiss(report)
        finally:
            self._exporting = False

    def _set_progress(self, progress: "ExportProgress") -> None:
        """Keep the progress; called by the thread of the export."""
        self._progress = progress

    def _paint(self) -> None:
        if not self._exporting:
            return
        progress = self._progress
        text = "Reading the journal ..." if progress is None else progress.text
        self._say(f"{'Cancelling' if self._stopped else text}  Esc cancels")

    def _say(self, text: str) -> None:
        self.query_one("#export-hint", Static).update(text)


def report_text(report: "ExportReport") -> str:
    """Return the notice of a finished export."""
    files = ", ".join(f"{path} ({plural(count, 'row')})" for path, count in report.files.items())
    redacted = plural(sum(report.redacted.values()), "secret")
    text = f"Exported {files}; {redacted} redacted. {report.card.name} says what was left out"
    if not report.damaged:
        return text
    from console.export.card import damage_text

    return f"{text}. {damage_text(report.damaged)}"


def export_obstacle(session: Session) -> str | None:
    """Return why nothing can be exported here; None when it can."""
    if session.home is None:
        return "This console has no home of its own: use `ajet-console export --journal FILE`"
    return None


def export_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entry; nothing where it cannot be used."""
    if app.session.seen and export_obstacle(app.session) is None:
        yield (
            "Requests: Export groups",
            "Write the marked groups, or all, to a file for a trainer",
            partial(_export_all, app),
        )


def _export_all(app: AppHost) -> None:
    app.run_worker(export(app), group="question", exclusive=True, exit_on_error=False)


async def export(app: AppHost, row_filter: Filter | None = None) -> None:
    """Ask for groups, format and file, then export.

    Args:
        app: The console.
        row_filter: Filter of the list in front, which is proposed; None without one.
    """
    session = app.session
    if session.home is None:  # see `export_obstacle`
        return
    from console.export.run import ExportOptions

    options = ExportOptions("", session.home)
    choices = _choices(session, row_filter or Filter())
    dialog = ExportScreen(choices, session.home, session.state.proxy_url, options)
    report = await app.push_screen_wait(dialog)
    if report is not None:
        app.say(report_text(report), "warning" if report.damaged else "information")


def _choices(session: Session, row_filter: Filter) -> list[tuple[str, Filter]]:
    """Return the groups that can be exported, as text and filter; the proposed ones first.

    The marked groups are always among them: marks of older groups are in the journal alone.
    """
    others = [("all groups of the journal", Filter())]
    if row_filter:
        text = f"the groups of the journal that match {one_line(row_filter.text, 40)}"
        others.insert(0, (text, row_filter))
    marked = ("the marked groups of the journal", parse("marked:yes"))
    groups = session.state.groups.values()
    has_marked = any(group.marked for group in groups) or session.history.has_marked
    return [marked, *others] if has_marked else [*others, marked]
