"""Dialogs of the rating screen: reasons, guidelines, mode, lists of groups, raters."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Markdown, OptionList, Static
from textual.widgets.option_list import Option

from ajet_swarm.common.text import one_line
from console.screens.rate.model import TAG_CAP, Guidelines, RateQueue
from console.screens.rate.raters import model, text
from console.screens.rate.text import MODES, mode_words, vote_rows
from console.session.app_state import Session
from console.text.lines import fit, line_text
from console.ui.keys import keys
from console.widgets.pane import TextPane
from core.commands import MODES as NAMES

LIST_CAP = 200
"""Most groups in a list of disagreements."""


class TagScreen(ModalScreen[tuple[str, ...]]):
    """Asks for the reasons of a vote; a digit sets or clears one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,w", "leave", "Done", id="tags.leave"),
        *(Binding(str(digit), f"flip({digit})", show=False) for digit in range(1, TAG_CAP + 1)),
    ]

    def __init__(
        self, query: str, names: Sequence[str], chosen: Sequence[str], keys: Mapping[str, str]
    ) -> None:
        """`query` is the question of the group; `keys` has the reasons by the key that gives them
        on the screen below."""
        super().__init__()
        self._query = f"“{one_line(query, 60)}”"
        self._names = list(names)
        self._chosen = set(chosen)
        self._keys = {name: f"  {key}" for key, name in keys.items()}

    def compose(self) -> ComposeResult:
        """The reasons, numbered."""
        hint = "A digit sets or clears one, Enter closes. A letter also works after a vote"
        with Vertical(classes="dialog"):
            yield Static("Why? Recorded with the vote", markup=False, classes="dialog-title")
            yield Static(self._query, markup=False, classes="dialog-body")
            yield Static(self._text(), markup=False, id="tags")
            yield Static(hint, markup=False, classes="dialog-hint")

    def _text(self) -> str:
        return "\n".join(
            f"{number}  {'✓' if name in self._chosen else '·'} {name}{self._keys.get(name, '')}"
            for number, name in enumerate(self._names, 1)
        )

    def action_flip(self, digit: int) -> None:
        """Set or clear a reason."""
        if digit <= len(self._names):
            self._chosen ^= {self._names[digit - 1]}
            self.query_one("#tags", Static).update(self._text())

    def action_leave(self) -> None:
        """Close with the reasons."""
        self.dismiss(tuple(name for name in self._names if name in self._chosen))


class GuidelinesScreen(ModalScreen[None]):
    """Shows the guidelines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,g,q", "app.pop_screen", "Close", id="guidelines.close"),
        Binding("down,j,space", "scroll(3)", "Down", show=False),
        Binding("up,k", "scroll(-3)", "Up", show=False),
    ]

    def __init__(self, guidelines: Guidelines) -> None:
        super().__init__()
        self._guidelines = guidelines

    def compose(self) -> ComposeResult:
        """The text, rendered, and its version."""
        hint = f"Version {self._guidelines.version} is recorded with your votes. Esc closes"
        with Vertical(classes="dialog -wide", id="guidelines"):
            with VerticalScroll():
                yield Markdown(self._guidelines.text, open_links=False)
            yield Static(hint, markup=False, classes="dialog-hint")

    def action_scroll(self, rows: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)


class ModeScreen(ModalScreen[str | None]):
    """Lists the three modes with their effect on the waiting user."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Leave", id="mode.leave"),
        *(
            Binding(str(number), f"dismiss('{name}')", mode_words(name), show=False)
            for number, name in enumerate(NAMES, 1)
        ),
    ]

    def __init__(self, present: str) -> None:
        super().__init__()
        self._present = present

    def compose(self) -> ComposeResult:
        """The modes, with the cursor on the present one."""
        modes = (Option(f"{at}  {MODES[name]}", id=name) for at, name in enumerate(NAMES, 1))
        hint = f"Now: {mode_words(self._present)}. Enter or a digit confirm, Esc cancel"
        with Vertical(classes="dialog"):
            yield Static("How do you rate?", markup=False, classes="dialog-title")
            yield OptionList(*modes, markup=False, compact=True)
            yield Static(hint, markup=False, classes="dialog-hint")

    def on_mount(self) -> None:
        """Put the cursor on the present mode."""
        if self._present in NAMES:
            self.query_one(OptionList).highlighted = NAMES.index(self._present)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the mode."""
        event.stop()
        self.dismiss(event.option.id)


class GroupChoice(NamedTuple):
    """The group that was chosen from a list, and what to do with it."""

    group_id: str
    action: Literal["open", "settle", "again"] = "open"


class GroupsScreen(ModalScreen[GroupChoice | None]):
    """A list of groups that follows the state; Enter closes it with the group under the cursor.

    A subclass says its `rows`, and what stands above them.
    """

    ID = ""
    heading = ""
    HINT = ""
    EMPTY = ""
    """The only row of an empty list; without it an empty list is hidden."""
    SECONDS = 1.0
    """Time between two refreshes."""

    def compose(self) -> ComposeResult:
        """Title, what stands above the list, the list, the keys."""
        with Vertical(classes="dialog -wide", id=self.ID):
            yield Static(self.heading, markup=False, classes="dialog-title")
            yield from self.above()
            yield OptionList(markup=False, compact=True)
            yield Static(self.HINT, markup=False, classes="dialog-hint")

    def above(self) -> Iterable[Widget]:
        """Return what stands between the title and the list."""
        return ()

    def rows(self, width: int) -> Sequence[tuple[str, str]]:
        """Return id and text of each group, for a width in cells."""
        return ()

    def on_mount(self) -> None:
        """Fill the list, and refresh it while the clocks run."""
        self.call_after_refresh(self.fill)
        self.set_interval(self.SECONDS, self.fill)

    def fill(self) -> None:
        """Show the groups; the cursor stays on its group."""
        options = self.query_one(OptionList)
        width = max(40, options.size.width - 3)
        rows = [(group_id, fit(words, width)) for group_id, words in self.rows(width)]
        ids = [group_id for group_id, _ in rows]
        options.display = bool(ids or self.EMPTY)
        if ids and [option.id for option in options.options] == ids:
            for group_id, words in rows:
                options.replace_option_prompt(group_id, words)
            return
        at = options.highlighted_option.id if options.highlighted_option is not None else None
        options.clear_options()
        options.add_options(Option(words, id=group_id) for group_id, words in rows)
        if ids:
            options.highlighted = ids.index(at) if at in ids else 0
            options.focus()
        elif self.EMPTY:
            options.add_option(Option(self.EMPTY, disabled=True))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the group, to open it."""
        event.stop()
        self.action_choose("open")

    def action_choose(self, action: Literal["open", "settle", "again"]) -> None:
        """Close with the group under the cursor, and what to do with it."""
        option = self.query_one(OptionList).highlighted_option
        if option is not None and option.id is not None:
            self.dismiss(GroupChoice(option.id, action))


class VotesScreen(GroupsScreen):
    """Lists the votes of this rater, newest first; returns the group that is chosen."""

    ID = "held"
    heading = "Your votes"
    HINT = "Enter undoes a held vote, opens a sent one; A asks again, Esc closes"
    EMPTY = "no vote is left"
    SECONDS = 0.5
    MOST = 50
    """Most votes in the list."""
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("escape,U,q", "dismiss", "Close", "held.leave"),
        ("A", "choose('again')", "Ask again", "held.again", "The same prompt, on Rate"),
    )

    def __init__(self, queue: RateQueue) -> None:
        super().__init__()
        self._queue = queue

    def rows(self, width: int) -> Sequence[tuple[str, str]]:
        return [(group_id, line_text(line)) for group_id, line in vote_rows(self._queue, self.MOST)]


class RatersScreen(GroupsScreen):
    """Shows the raters and their disagreements; returns the one to open or to settle."""

    ID = "raters"
    heading = "Raters"
    HINT = "s settles a disagreement, Enter opens its group, Esc closes"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("escape,r,q", "dismiss", "Close", "raters.leave"),
        ("s", "choose('settle')", "Settle", "raters.settle", "Cast the decisive vote"),
    )

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._agreement: model.RaterAgreement | None = None

    def above(self) -> Iterable[Widget]:
        yield TextPane(id="raters-summary")

    def on_mount(self) -> None:
        """Compute the agreement once."""
        self.run_worker(self._compute(), group="agreement", exit_on_error=False)

    async def _compute(self) -> None:
        votes = model.judged_votes(self._session.state)
        self._agreement = await asyncio.to_thread(model.agreement_of, votes)
        self.fill()

    def rows(self, width: int) -> Sequence[tuple[str, str]]:
        """Return the disagreements, without groups on which this rater has still to vote."""
        session = self._session
        groups = [
            group
            for group in model.disagreements(session.state)
            if group.sealed_at is not None or not group.needs_vote_of(session.rater, session.holder)
        ][:LIST_CAP]
        raters = model.rater_rows(session.state, session.now())
        lines = text.rater_lines(raters, self._agreement, len(groups))
        self.query_one("#raters-summary", TextPane).show_lines(lines)
        return [(group.group_id, text.disagreement_row(group, width)) for group in groups]


class AgreementScreen(GroupsScreen):
    """Compares the operator's votes with the automatic rewards; returns the group to open."""

    ID = "judge"
    HINT = "Intervals are Wilson's, 95 %. Enter opens a group, Esc closes"
    BINDINGS: ClassVar[list[BindingType]] = keys(("escape,j,q", "dismiss", "Close", "judge.leave"))

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.heading = f"{one_line(session.rater, 30) or 'you'} and the automatic rewards"
        self._stats = session.state.raters.get(session.rater)
        self._groups = model.reward_disagreements(session.state, session.rater)[:LIST_CAP]

    def above(self) -> Iterable[Widget]:
        yield TextPane(id="judge-summary")
        yield Static(text.list_title(len(self._groups)), markup=False, classes="dialog-heading")

    def rows(self, width: int) -> Sequence[tuple[str, str]]:
        self.query_one("#judge-summary", TextPane).show_lines(text.summary_lines(self._stats))
        return [(group.group_id, text.row_text(group, width)) for group in self._groups]
