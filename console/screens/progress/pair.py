"""Blind pairs: compare an earlier answer with a current one, without knowing which is which."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.models.app_host import AppHost
from console.screens.base import ConsoleScreen
from console.screens.group.rater import with_rater_name
from console.screens.progress.model import progress_server
from console.screens.progress.text import blind_answers, blind_title
from console.session.command_plans import may_send
from console.text.wrap import wrapped
from console.ui.keys import keys
from console.widgets.pane import TextPane
from console.widgets.scrolled_pane import ScrolledPane
from core.commands import COMMANDS
from core.state import Progress

_PHASES = {
    "choose": ("open",),
    "go_on": ("open", "rated"),
    "newest": ("open", "rated", "refused"),
}
"""Action -> the phases in which it has an effect."""


class PairScreen(ConsoleScreen):
    """Shows random pairs of answers, takes a vote on each, then says which was which.

    Attributes:
        phase: What happens now.
        pair: Data of the command `progress.pair`; None without a pair.
        vote: Data of the command `progress.vote`; None before the vote.
    """

    area: ClassVar[str] = "Blind pair"
    help_text: ClassVar[str] = (
        "An answer of the baseline and one of a look, drawn at random, on random sides. Say which "
        "is better before you know which is which: 1 or 2, 0 if neither is, Space skips. After the "
        "vote the screen shows what they were, and in which share of your votes now was better. "
        "Its interval is valid after every vote. From 30 ratings on they also correct the win rate "
        "by the reward.\n"
        "The ratings never train. They are about one look, which stays the same while later looks "
        "are taken. An open pair stays open "
        "until you vote or skip. Skip only what you cannot judge: pairs that are skipped for what "
        "they say make the rate less representative."
    )
    digits_vote: ClassVar[bool] = True
    AUTO_FOCUS: ClassVar[str | None] = "ScrolledPane"
    first_keys: tuple[str, ...] = ("choose('left')", "choose('right')", "choose('tie')", "go_on")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "go_on", "Skip", id="pair.skip", priority=True),  # the text scrolls by it
        *keys(
            ("1", "choose('left')", "First is better", "pair.left"),
            ("2", "choose('right')", "Second is better", "pair.right"),
            ("0", "choose('tie')", "Neither", "pair.tie"),
            ("n", "newest", "Newest look", "pair.newest", "Of it; the count begins again"),
            ("escape", "dismiss", "Back", "pair.leave"),
        ),
    ]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self.phase: Literal["asks", "open", "sends", "rated", "refused"] = "asks"
        self.pair: Mapping[str, Any] | None = None
        self.vote: Mapping[str, Any] | None = None
        self._message = "A pair is drawn…"

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="blind-title")
        yield ScrolledPane(id="blind-answers")

    @property
    def target_server(self) -> str | None:
        return self._server

    @property
    def takes_digits(self) -> bool:
        """Whether digits vote now; else they switch screens."""
        return self.phase in ("open", "sends")

    def on_mount(self) -> None:
        """Ask for a pair."""
        self._draw()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Offer the newest look when there is one."""
        if "*" in dirty:
            self._paint()
        elif "progress" in dirty:
            self.refresh_bindings()

    def _paint(self) -> None:
        title = self.query_one("#blind-title", TextPane)
        answers = self.query_one("#blind-answers", TextPane)
        pair, vote, message = self.pair, self.vote, self._message
        shown = (self.phase, message, pair and pair["pair_id"], vote is None)
        if pair is None:
            title.show_lines([(("BLIND PAIR", "bold $heading"),)])
            answers.show(shown, lambda width: [((row, ""),) for row in wrapped(message, width)])
        else:
            title.show(shown, lambda width: blind_title(pair, vote, width))
            answers.show(shown, lambda width: blind_answers(pair, vote, width))
        self.footer_words = {"go_on": "Next pair" if self.phase == "rated" else "Skip"}
        self.refresh_bindings()

    # --- votes -------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the vote while a pair is open, and the newest look if it is another one."""
        if action not in _PHASES:
            return super().check_action(action, parameters)
        progress = self.session.state.progress.get(self._server) or Progress()
        ratings, newest = progress.pair_ratings, progress.current
        has_newer = bool(ratings and newest and ratings.look_id != newest.look_id)
        return self.phase in _PHASES[action] and (action != "newest" or has_newer)

    def action_choose(self, choice: str) -> None:
        """Vote; the first vote of a home asks for a name."""
        with_rater_name(self, lambda: self._send(choice))

    def action_go_on(self) -> None:
        """Skip the pair, or go to the next one after a vote."""
        if self.phase == "rated":
            self._draw()
        else:
            self._send("skip")

    def action_newest(self) -> None:
        """Compare the newest look from now on."""
        self._draw(newest=True)

    def _draw(self, newest: bool = False) -> None:
        """Ask for a pair in the background."""
        self.phase = "asks"
        self.refresh_bindings()
        asking = self._next(newest)
        self.run_worker(asking, group="pair", exclusive=True, exit_on_error=False)

    async def _next(self, newest: bool = False) -> None:
        args = {"server": self._server, "rater": self.session.rater, "newest": newest}
        outcome = await self.session.command("progress.pair", **args)
        self.vote, self.pair, self.phase = None, outcome.data, "open"
        if not outcome.ok:
            self.pair, self.phase, self._message = None, "refused", outcome.message
        self._paint()
        self.query_one("#blind-answers", TextPane).scroll_to(y=0, animate=False)

    def _send(self, choice: str) -> None:
        if self.pair is not None and self.phase == "open":
            self.phase = "sends"
            self.refresh_bindings()
            self._cast(self.pair["pair_id"], choice)

    @work(group="pair", exclusive=True, exit_on_error=False)
    async def _cast(self, pair_id: str, choice: str) -> None:
        args = {"server": self._server, "rater": self.session.rater}
        outcome = await self.session.command(
            "progress.vote", pair_id=pair_id, choice=choice, **args
        )
        if not outcome.ok:
            self.host.say(outcome.message, "error")
        if outcome.ok and choice != "skip":
            self.vote, self.phase = outcome.data, "rated"
            self._paint()
        else:
            await self._next()


def pair_entries(app: AppHost, server: str | None) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entry that opens a pair."""
    name = server or progress_server(app.session.state)
    if may_send(app.session, "progress.pair", server=name):
        command = COMMANDS["progress.pair"]
        yield command.title, command.help, lambda: app.push_screen(PairScreen(name))
