"""One probe prompt: the answers before and now, whole screen."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ajet_swarm.common.text import one_line
from console.models.progress.prompts import PromptChange, prompt_changes
from console.screens.base import ConsoleScreen
from console.text.lines import Line
from console.views.progress.tables import prompt_pair
from console.widgets.pane import TextPane
from core.state import Progress


class ProbePromptScreen(ConsoleScreen):
    """Prompt, reference and both answers side by side."""

    area: ClassVar[str] = "Probe prompt"
    help_text: ClassVar[str] = (
        "The answer in the baseline and the answer in the newest look: the one of greatest "
        "probability where the server offers it, else the first sample. In the answer of now, "
        "shared words are dim, its own are underlined, missing ones are struck through. The first "
        "600 characters are kept; the file of the look has all samples. [ and ] show the prompts "
        "that changed more and less."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", show=False),
        Binding("pagedown,space", "scroll(10)", "Page down", show=False),
        Binding(
            "left_square_bracket", "other(-1)", "Changed more", key_display="[", id="probe.more"
        ),
        Binding(
            "right_square_bracket", "other(1)", "Changed less", key_display="]", id="probe.less"
        ),
        Binding("escape", "dismiss", "Back", id="probe.leave"),
    ]

    def __init__(self, server: str, prompt: str) -> None:
        super().__init__()
        self._server = server
        self._prompt = prompt

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="probe-title")
        yield TextPane(id="probe-pair")

    @property
    def target_server(self) -> str | None:
        return self._server

    @property
    def _progress(self) -> Progress:
        return self.session.state.progress.get(self._server) or Progress()

    def update_view(self, dirty: frozenset[str]) -> None:
        if "*" in dirty or "progress" in dirty:
            self._paint()

    def _paint(self) -> None:
        progress = self._progress
        changes = prompt_changes(progress)
        at = self._place(changes)
        title: Line = ((" PROBE PROMPT  ", "bold $heading"), (one_line(self._prompt, 60), "bold"))
        if at is None:
            gone = "It is not in the newest look: a new comparison began"
            self.query_one("#probe-title", TextPane).show_lines([title])
            self.query_one("#probe-pair", TextPane).show_lines([((f" {gone}", "$muted"),)])
        else:
            count = f"  {at + 1} of {len(changes)}"
            self.query_one("#probe-title", TextPane).show_lines([(*title, (count, "$muted"))])
            change = changes[at]
            self.query_one("#probe-pair", TextPane).show(
                (change, progress.current and progress.current.look_id),
                lambda width: prompt_pair(change, progress, width),
            )
        self.refresh_bindings()

    def _place(self, changes: Sequence[PromptChange]) -> int | None:
        return next((at for at, change in enumerate(changes) if change.id == self._prompt), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the other prompts where there are some."""
        if action == "other":
            changes = prompt_changes(self._progress)
            at, by = self._place(changes), int(str(parameters[0]))
            return at is not None and 0 <= at + by < len(changes)
        return super().check_action(action, parameters)

    def action_other(self, by: int) -> None:
        """Show a prompt that changed more or less."""
        changes = prompt_changes(self._progress)
        at = self._place(changes)
        if at is not None and 0 <= at + by < len(changes):
            self._prompt = changes[at + by].id
            self.query_one("#probe-pair", TextPane).scroll_to(y=0, animate=False)
            self._paint()

    def action_scroll(self, rows: int) -> None:
        """Scroll the text."""
        self.query_one("#probe-pair", TextPane).scroll_relative(y=rows, animate=False)
