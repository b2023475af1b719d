"""Blind pairs: compare an answer of before with one of now, without knowing which is which."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.models.app_host import AppHost
from console.models.progress.standing import progress_server
from console.screens.base import ConsoleScreen
from console.screens.parts import bind_actions
from console.screens.progress.votes import PairVotes
from console.session.command_plans import may_send
from console.text.wrap import wrapped
from console.views.progress.prompt_pair import blind_answers, blind_title
from console.widgets.pane import TextPane
from core.commands import COMMANDS


class PairScreen(ConsoleScreen):
    """Shows random pairs of answers, takes a vote on each, then says which was which."""

    area: ClassVar[str] = "Blind pair"
    help_text: ClassVar[str] = (
        "An answer of the baseline and one of a look, drawn at random, on random sides. Say which "
        "is better before you know which is which: 1 or 2, 0 if neither is, Space skips. After the "
        "vote the screen shows what they were, and in which share of your votes now was better. "
        "Its interval is valid after every vote. From 30 ratings on they also correct the win rate "
        "by the reward.\n"
        "The ratings never train. They are about one look, which stays the same while later looks "
        "are taken; n goes to the newest one, and the count begins again. An open pair stays open "
        "until you vote or skip. Skip only what you cannot judge: pairs that are skipped for what "
        "they say make the rate less representative."
    )
    digits_vote: ClassVar[bool] = True
    AUTO_FOCUS: ClassVar[str | None] = None
    first_keys: tuple[str, ...] = ("choose('left')", "choose('right')", "choose('tie')", "go_on")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "choose('left')", "First is better", id="pair.left"),
        Binding("2", "choose('right')", "Second is better", id="pair.right"),
        Binding("0", "choose('tie')", "Neither", id="pair.tie"),
        Binding("space", "go_on", "Skip", id="pair.skip", tooltip="After a vote: the next pair"),
        Binding(
            "n",
            "newest",
            "Newest look",
            id="pair.newest",
            tooltip="Compare the newest look; the count begins again",
        ),
        Binding("up,k", "scroll_rows(-1)", "Up", show=False),
        Binding("down,j", "scroll_rows(1)", "Down", show=False),
        Binding("pageup", "scroll_rows(-10)", "Page up", show=False),
        Binding("pagedown", "scroll_rows(10)", "Page down", show=False),
        Binding("escape", "dismiss", "Back", id="pair.leave"),
    ]

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server
        self.votes = PairVotes(self, server, self._show)
        bind_actions(self, self.votes)

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="blind-title")
        yield TextPane(id="blind-answers")

    @property
    def target_server(self) -> str | None:
        return self._server

    @property
    def takes_digits(self) -> bool:
        """Whether digits vote now; else they switch screens."""
        return self.votes.phase in ("open", "sends")

    def on_mount(self) -> None:
        """Ask for a pair."""
        self.votes.request()

    def update_view(self, dirty: frozenset[str]) -> None:
        """Offer the newest look when there is one."""
        if "*" in dirty:
            self._show()
        elif "progress" in dirty:
            self.refresh_bindings()

    def _show(self, is_other: bool = False) -> None:
        """Paint the pair; another one from its top."""
        title = self.query_one("#blind-title", TextPane)
        answers = self.query_one("#blind-answers", TextPane)
        votes = self.votes
        pair, vote, message = votes.pair, votes.vote, votes.message
        shown = (votes.phase, message, pair and pair["pair_id"], vote is None)
        if pair is None:
            title.show_lines([(("BLIND PAIR", "bold $heading"),)])
            answers.show(shown, lambda width: [((row, ""),) for row in wrapped(message, width)])
        else:
            title.show(shown, lambda width: blind_title(pair, vote, width))
            answers.show(shown, lambda width: blind_answers(pair, vote, width))
        if is_other:
            answers.scroll_to(y=0, animate=False)
        self.footer_words = {"go_on": "Next pair" if votes.phase == "rated" else "Skip"}
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the vote while a pair is open."""
        if action in ("choose", "go_on", "newest"):
            return self.votes.may(action)
        return super().check_action(action, parameters)

    def action_scroll_rows(self, rows: int) -> None:
        """Scroll the answers."""
        self.query_one("#blind-answers", TextPane).scroll_relative(y=rows, animate=False)


def may_rate_pairs(app: AppHost, server: str) -> bool:
    """Return whether there are two looks to compare, and this console may vote."""
    return may_send(app.session, "progress.pair", server=server)


def pair_entries(app: AppHost, server: str | None) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entry that opens a pair."""
    name = server or progress_server(app.session.state)
    if may_rate_pairs(app, name):
        command = COMMANDS["progress.pair"]
        yield command.title, command.help, lambda: app.push_screen(PairScreen(name))
