"""History screen: a line for each engine run, the chosen one in full below; two compared."""

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from ajet_swarm.common.errors import AjetError
from console.screens.base import ConsoleScreen
from console.screens.history.model import compare, past_command, title
from console.screens.history.text import comparison, detail, table_head, table_row
from console.screens.overview.sections import starting
from console.session.app_state import EVERYTHING, Session
from console.text.lines import Line
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped
from console.ui.keys import keys
from console.widgets.editor import run_program
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane
from console.widgets.scrolled_pane import ScrolledPane
from console.widgets.section import Section
from core.state import EngineRun, EngineRuns

_SCROLL = "The details of the run; K scrolls back"
_OF_A_RUN = frozenset({"ask", "pin", "mark", "compare"})
_KEYS = frozenset({"*", "runs", "servers", "clock", "link", "starting", "children"})


class HistoryScreen(ConsoleScreen):
    """Lists all engine runs; shows the one under the cursor."""

    area: ClassVar[str] = "History"
    shows_texts: ClassVar[bool] = False
    shows_curves: ClassVar[bool] = True
    help_text: ClassVar[str] = (
        "One line for each run, newest first: an engine from its start to its stop. Reward is the "
        "mean automatic reward of its first step and of its newest one; verdict is that of the "
        "newest look at the probe set during the run; rated counts the groups with human ratings. "
        "Below, the run under the cursor: its job, the versions of its rewards, your note, and the "
        "reward by step; J and K scroll it.\n"
        "Enter opens all screens as of the end of the run: a replay of the journal, which sends no "
        "command; its keys play the run from the beginning. Ctrl+Q returns to the present. A "
        "marked run is compared with another marked one, else with the one under the cursor."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    first_keys: tuple[str, ...] = ("open", "mark", "compare")
    BINDINGS: ClassVar[list[BindingType]] = [
        # the list scrolls by this key
        Binding("space", "mark", "Mark", True, None, True, "Mark two to compare", "history.mark"),
        *keys(
            ("c", "compare", "Compare", "history.compare", "Two marked runs: curves, differences"),
            ("r", "ask('name')", "Name", "run.name", "Name the run; empty removes it"),
            ("n", "ask('note')", "Note", "run.note", "Write a note on the run"),
            ("p", "pin", "Pin", "run.pin", "Keep its requests when the journal is pruned"),
        ),
        Binding("J,shift+down", "scroll_detail(1)", "Scroll", True, "J", False, _SCROLL),
        *keys(("K,shift+up", "scroll_detail(-1)", "Scroll back")),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._marked: list[int] = []
        """Numbers of the marked runs, at most two, oldest mark first."""
        self._any = False

    @property
    def _runs(self) -> EngineRuns:
        return self.session.state.engine_runs

    @property
    def chosen(self) -> EngineRun | None:
        """The run under the cursor; the newest one until the table is painted."""
        number, runs = self.query_one(ItemList).cursor, self._runs
        return runs.numbered(int(number)) if number else next(reversed(runs.runs), None)

    @property
    def target_server(self) -> str | None:
        """The server of the run under the cursor, if the proxy still has it."""
        run = self.chosen if self.is_mounted else None
        return run.server if run is not None and run.server in self.session.state.servers else None

    def compose_body(self) -> Iterable[Widget]:
        """Table and details; a text until there is a run."""
        yield Section(no_runs, _KEYS - {"*"}, id="no-runs")
        yield ItemList(id="runs-table")
        yield TextPane(id="runs-detail", fill=True)

    # --- painting -------------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Repaint what changed; the clock changes the runs in progress."""
        if dirty.isdisjoint(_KEYS):
            return
        any_runs, text = bool(self._runs.runs), self.query_one("#no-runs", Section)
        text.display = not any_runs
        for part in ("#runs-table", "#runs-detail"):
            self.query_one(part).display = any_runs
        if any_runs:
            self._paint()
        else:
            text.paint(self.session, dirty)
        if any_runs != self._any:
            self._any = any_runs
            self.query_one(ItemList).focus()
            self.refresh_bindings()
            if any_runs:  # the parts that were hidden have no size yet
                self.call_after_refresh(self.host.guarded, self._paint)

    def _paint(self) -> None:
        runs, now, table = self._runs, self.session.as_of, self.query_one(ItemList)
        several = len({run.server for run in runs.runs}) > 1
        marked = self._marked = [n for n in self._marked if runs.numbered(n) is not None]
        table.show_head(("head", several), lambda width: table_head(width, several=several))
        table.show_rows(
            runs.runs[::-1],
            lambda run: str(run.number),
            lambda run, width: table_row(
                runs, run, now, width, several=several, marked=run.number in marked
            ),
        )
        self._paint_detail()

    def _paint_detail(self) -> None:
        pane, run, runs = self.query_one("#runs-detail", TextPane), self.chosen, self._runs
        if run is None:
            pane.show_lines([])
            return
        now = self.session.as_of

        def build(width: int) -> list[Line]:
            return detail(runs, run, now, width, pane.size.height)

        pane.show((_source(run, now), run.dead, tuple(run.rewards)), build)

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show another run from its top."""
        self.query_one("#runs-detail", TextPane).scroll_home(animate=False)
        self.host.guarded(self._paint_detail)
        self.refresh_bindings()

    # --- keys -----------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        if action in _OF_A_RUN and not self._runs.runs:
            return False
        if action in ("ask", "pin"):
            command = f"run.{parameters[0]}" if parameters else "run.pin"
            return self.session.allows(command) and self.session.link is not None
        return super().check_action(action, parameters)

    def action_mark(self) -> None:
        """Mark the run under the cursor, or remove its mark; a third mark removes the oldest."""
        if (run := self.chosen) is None:
            return
        if run.number in self._marked:
            self._marked.remove(run.number)
        else:
            self._marked = [*self._marked[-1:], run.number]
        self._paint()

    def action_compare(self) -> None:
        """Compare two runs: the marked ones, else the marked one and the one under the cursor."""
        chosen = [self.chosen.number] if self.chosen is not None else []
        numbers = list(dict.fromkeys([*self._marked, *chosen]))[:2]
        if len(numbers) < 2:
            self.host.say("Mark a run with Space, then press c on another one", "warning")
        else:
            self.app.push_screen(CompareRunsScreen(min(numbers), max(numbers)))

    def action_pin(self) -> None:
        """Pin the run, or remove the pin."""
        if (run := self.chosen) is not None:
            self.host.run_command("run.pin", number=run.number, pinned=not run.pinned)

    @work(group="command", exit_on_error=False)
    async def action_ask(self, field: str) -> None:
        """Ask for the name or the note of the run."""
        if (run := self.chosen) is None:
            return
        number, value = run.number, run.name if field == "name" else run.note
        text = await self.host.ask(f"{field.capitalize()} of run {number}", value=value)
        if text is not None and text != value:
            await self.host.send_command(f"run.{field}", **{"number": number, field: text})

    def action_scroll_detail(self, rows: int) -> None:
        """Scroll the details."""
        detail_pane = self.query_one("#runs-detail", TextPane)
        detail_pane.scroll_relative(y=rows, animate=False, immediate=True)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open all screens as of the end of a run."""
        if (run := self._runs.numbered(int(event.key))) is not None:
            self._open_past(run)

    @work(group="past", exclusive=True, exit_on_error=False)
    async def _open_past(self, run: EngineRun) -> None:
        """Show a replay of the run on this terminal; return when the operator leaves it."""
        journal, theme = self.session.journal, self.host.theme
        try:
            command = await asyncio.to_thread(past_command, journal, run, "overview", theme)
            when = "as of now" if run.ended is None else "as of its end"
            notice = f"Run {run.number} opens {when}. Ctrl+Q returns to the present."
            code = await run_program(self.host, command, notice)
        except AjetError as error:
            self.host.say(str(error), "warning")
        except SuspendNotSupported:
            todo = f"`ajet-console journal replay --history {run.number}` in a terminal of its own"
            self.host.say(f"This terminal cannot show it beside the console: {todo}", "warning")
        except OSError as error:
            self.host.say(f"{title(run)} cannot be shown: {error.strerror or error}", "error")
        else:
            if code:
                self.host.say(f"The replay of {title(run)} ended with {code}", "error")


def _source(run: EngineRun, now: float) -> object:
    """Return what the line of a run depends on."""
    time_in = int(now) if run.running else run.ended
    figures = (run.groups, run.rated, run.last_step, run.last_reward, run.verdict_step)
    return run.number, time_in, figures, (run.name, run.note, run.pinned)


def no_runs(session: Session, room: Room) -> Content:
    """Return what to do while there is no run."""
    if not session.seen:
        return starting(session, room)
    text = (
        "No engine has run yet. 5 opens the engines, where s starts one: from its start to its "
        "stop it is one run here, with its job, its rewards and the verdict."
    )
    if any(server.state == "OBSERVING" for server in session.state.servers.values()):
        text = (
            "Nothing is trained in observe mode, so there is no run. A swarm server in place of "
            "the upstream trains on the same requests."
        )
    words = [Content.styled(line, "$muted") for line in wrapped(text, max(20, room.width - 4))]
    return lines(heading("HISTORY", "no run yet"), Content(""), *words)


class CompareRunsScreen(ConsoleScreen):
    """Which of two runs is better, their figures and differences side by side, their curves."""

    area: ClassVar[str] = "Compare"
    shows_texts: ClassVar[bool] = False
    shows_curves: ClassVar[bool] = True
    help_text: ClassVar[str] = (
        "First, which run is better: the mean automatic reward of the newest steps of each, where "
        "both had the same rewards all the time. Below: figures of both, then the settings that "
        "differ in their jobs, and the parts that differ in the rewards that each used last; at "
        "the end the mean reward by the number of updates since the start, the first run as a "
        "whole line, the second one dashed."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ScrolledPane"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("x", "swap", "Swap", "history.swap", "The other run as the first one"),
        ("escape", "dismiss", "Back", "history.leave"),
    )

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self._numbers = left, right

    def compose_body(self) -> Iterable[Widget]:
        yield ScrolledPane(id="compare-body", fill=True)

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint({"*", "runs", "servers", "clock"}):
            return
        runs, now = self.session.state.engine_runs, self.session.as_of
        left, right = (runs.numbered(number) for number in self._numbers)
        body = self.query_one("#compare-body", TextPane)
        if left is None or right is None:
            body.show_lines([(("One of the runs is not in the history any more.", "$muted"),)])
            return
        compared = compare(runs, left, right)
        source = _source(left, now), _source(right, now)
        body.show(source, lambda width: comparison(compared, now, width, body.size.height))

    def action_swap(self) -> None:
        """Exchange the runs."""
        self._numbers = self._numbers[1], self._numbers[0]
        self.update_view(EVERYTHING)
