"""The comparison of two engine runs."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.models.history.runs import compare, title
from console.screens.base import ConsoleScreen
from console.text.lines import Line
from console.views.history.runs import comparison
from console.widgets.pane import TextPane


class CompareRunsScreen(ConsoleScreen):
    """Curves of two runs over each other, their figures, the differences of job and rewards."""

    area: ClassVar[str] = "Compare"
    shows_texts: ClassVar[bool] = False
    shows_curves: ClassVar[bool] = True
    help_text: ClassVar[str] = (
        "The mean automatic reward of two runs by the number of updates since their start: the "
        "first run as a whole line, the second one dashed. Where the rewards differ, the levels of "
        "the curves cannot be compared. Below: figures of both, then the settings that differ in "
        "their jobs, and the parts that differ in the rewards that each used last."
    )
    AUTO_FOCUS: ClassVar[str | None] = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "swap", "Swap", id="history.swap", tooltip="The other run as the first one"),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("pagedown,space", "scroll(10)", "Page down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", show=False),
        Binding("escape", "dismiss", "Back", id="history.leave"),
    ]

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self._numbers = left, right

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="compare-head")
        yield TextPane(id="compare-body", fill=True)

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint({"*", "runs", "servers", "clock"}):
            return
        runs, now = self.session.state.engine_runs, self.session.as_of
        left, right = (runs.numbered(number) for number in self._numbers)
        body = self.query_one("#compare-body", TextPane)
        if left is None or right is None:
            body.show_lines([(("One of the runs is not in the history any more.", "$muted"),)])
            return
        head: Line = (
            (title(left), "bold $curve"),
            (" and ", "$muted"),
            (title(right), "bold $winner"),
        )
        self.query_one("#compare-head", TextPane).show_lines([head])
        compared = compare(runs, left, right)
        running = left.running or right.running
        changing = [
            (run.groups, run.last_step, run.last_reward, run.verdict_step) for run in (left, right)
        ]
        source = (self._numbers, tuple(changing), int(now) if running else 0)
        body.show(source, lambda width: comparison(compared, now, width, body.size.height))

    def action_swap(self) -> None:
        """Exchange the runs."""
        self._numbers = self._numbers[1], self._numbers[0]
        self.update_view(frozenset({"*"}))

    def action_scroll(self, rows: int) -> None:
        """Scroll the comparison."""
        body = self.query_one("#compare-body", TextPane)
        body.scroll_relative(y=rows, animate=False, immediate=True)
