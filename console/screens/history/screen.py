"""History screen: a line for each engine run, the chosen one in full below."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from console.screens.base import ConsoleScreen
from console.screens.history.actions import WRITING, RunActions
from console.screens.history.compare import CompareRunsScreen
from console.screens.overview.sections import starting
from console.screens.parts import bind_actions, merge_bindings
from console.session.app_state import Session
from console.text.lines import Line
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped
from console.views.history.runs import detail, row_of, table_head, table_row
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from console.widgets.section import Section
from core.state import EngineRun, EngineRuns

_OF_A_RUN = frozenset({*WRITING, "mark", "compare"})
_KEYS = frozenset({"*", "runs", "servers", "clock", "link", "starting", "children"})
_BEFORE = _KEYS - {"*"}
"""What the text without a run depends on."""


class RunRows:
    """The lines of the runs; those of runs that ended are built once."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[object, ListItem]] = {}

    def source(self, run: EngineRun, now: float, *, marked: bool = False) -> object:
        """Return what the line of a run depends on."""
        time_in = int(now) if run.running else run.ended
        figures = (run.groups, run.rated, run.last_step, run.last_reward, run.verdict_step)
        return run.number, time_in, figures, (run.name, run.note, run.pinned, marked)

    def item(
        self,
        runs: EngineRuns,
        run: EngineRun,
        now: float,
        width: int,
        *,
        several: bool,
        marked: bool,
    ) -> ListItem:
        """Return the line of a run in `width` cells."""
        source = (self.source(run, now, marked=marked), width, several)
        cached = self._rows.get(run.number)
        if cached is not None and cached[0] == source:
            return cached[1]
        row = row_of(runs, run, now, marked=marked)
        item = ListItem(str(run.number), (table_row(row, width, several=several),))
        if len(self._rows) > 2 * len(runs.runs):
            self._rows.clear()
        self._rows[run.number] = (source, item)
        return item


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
        "command; its keys play the run from the beginning. Ctrl+Q returns to the present.\n"
        "Space marks a run. c compares two marked runs, or a marked one with the one under the "
        "cursor: their curves over each other, and what differs in their jobs and rewards.\n"
        "r names a run, n writes a note on it. p pins it: its requests stay when the journal is "
        "pruned."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    first_keys: tuple[str, ...] = ("open", "mark", "compare")
    BINDINGS: ClassVar[list[BindingType]] = merge_bindings(
        [
            Binding(
                "space",
                "mark",
                "Mark",
                priority=True,  # the list scrolls by this key
                id="history.mark",
                tooltip="Mark two to compare",
            ),
            Binding(
                "c",
                "compare",
                "Compare",
                id="history.compare",
                tooltip="Two marked runs: curves over each other, differences of job and rewards",
            ),
        ],
        RunActions.BINDINGS,
        [
            Binding(
                "J,shift+down",
                "scroll_detail(1)",
                "Scroll",
                key_display="J",
                tooltip="The details of the run; K scrolls back",
            ),
            Binding("K,shift+up", "scroll_detail(-1)", "Scroll back", show=False),
        ],
    )

    def __init__(self) -> None:
        super().__init__()
        self._marked: list[int] = []
        """Numbers of the marked runs, at most two, oldest mark first."""
        self._rows = RunRows()
        self._any = False
        self.actions = RunActions(self, lambda: self.chosen)
        bind_actions(self, self.actions)

    @property
    def chosen(self) -> EngineRun | None:
        """The run under the cursor; the newest one until the table is painted."""
        number, runs = self.query_one(ItemList).cursor, self._runs.runs
        if not number:
            return runs[-1] if runs else None
        return self._runs.numbered(int(number))

    @property
    def _runs(self) -> EngineRuns:
        return self.session.state.engine_runs

    @property
    def target_server(self) -> str | None:
        """The server of the run under the cursor, if the proxy still has it."""
        run = self.chosen if self.is_mounted else None
        return run.server if run is not None and run.server in self.session.state.servers else None

    def compose_body(self) -> Iterable[Widget]:
        """Table and details; a text until there is a run."""
        yield Section(no_runs, _BEFORE, id="no-runs")
        yield ItemList(id="runs-table")
        yield TextPane(id="runs-detail", fill=True)

    # --- painting -------------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Repaint what changed; the clock changes the runs in progress."""
        if dirty.isdisjoint(_KEYS):
            return
        any_runs = bool(self._runs.runs)
        self.query_one("#no-runs").display = not any_runs
        for part in ("#runs-table", "#runs-detail"):
            self.query_one(part).display = any_runs
        if not any_runs:
            self.query_one("#no-runs", Section).paint(self.session, dirty)
        else:
            self._paint()
        if any_runs != self._any:
            self._any = any_runs
            self.query_one(ItemList).focus()
            self.refresh_bindings()
            if any_runs:  # the parts that were hidden have no size yet
                self.call_after_refresh(self.host.guarded, self._paint)

    def _paint(self) -> None:
        runs, now = self._runs, self.session.as_of
        table = self.query_one(ItemList)
        several = len({run.server for run in runs.runs}) > 1
        shown = [*reversed(runs.runs)]
        marked = self._marked = [
            number for number in self._marked if runs.numbered(number) is not None
        ]
        table.show_head(("head", several), lambda width: table_head(width, several=several))

        def rows(width: int) -> list[ListItem]:
            return [
                self._rows.item(runs, run, now, width, several=several, marked=run.number in marked)
                for run in shown
            ]

        source = self._rows.source
        table.show_items(
            tuple(source(run, now, marked=run.number in marked) for run in shown), rows
        )
        if not table.cursor and shown:
            table.action_edge(0)
        self._paint_detail()

    def _paint_detail(self) -> None:
        pane, run = self.query_one("#runs-detail", TextPane), self.chosen
        if run is None:
            pane.show_lines([])
            return
        runs, now = self._runs, self.session.as_of

        def build(width: int) -> list[Line]:
            return detail(runs, run, now, width, pane.size.height)

        pane.show((self._rows.source(run, now), run.dead, tuple(run.rewards)), build)

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
        if action in WRITING:
            return self.session.allows(WRITING[action]) and self.session.link is not None
        return super().check_action(action, parameters)

    def action_scroll_detail(self, rows: int) -> None:
        """Scroll the details."""
        self.query_one("#runs-detail", TextPane).scroll_relative(
            y=rows, animate=False, immediate=True
        )

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
        numbers = list(self._marked)
        if len(numbers) < 2 and self.chosen is not None and self.chosen.number not in numbers:
            numbers.append(self.chosen.number)
        if len(numbers) < 2:
            self.host.say("Mark a run with Space, then press c on another one", "warning")
            return
        self.app.push_screen(CompareRunsScreen(min(numbers), max(numbers)))

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open all screens as of the end of a run."""
        if (run := self._runs.numbered(int(event.key))) is not None:
            self.actions.open_past(run)


def no_runs(session: Session, room: Room) -> Content:
    """Return what to do while there is no run."""
    if not session.seen:
        return starting(session, room)
    observed = [server for server in session.state.servers.values() if server.state == "OBSERVING"]
    if observed:
        text = (
            "Nothing is trained in observe mode, so there is no run. A swarm server in place of "
            "the upstream trains on the same requests."
        )
    else:
        text = (
            "No engine has run yet. 5 opens the engines, where s starts one: from its start to its "
            "stop it is one run here, with its job, its rewards and the verdict."
        )
    words = [Content.styled(line, "$muted") for line in wrapped(text, max(20, room.width - 4))]
    return lines(heading("HISTORY", "no run yet"), Content(""), *words)
