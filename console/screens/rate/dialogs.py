"""Dialogs of the rating screen: reasons, guidelines, held votes, agreement."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Markdown, OptionList, Static
from textual.widgets.option_list import Option

from ajet_swarm.common.text import one_line
from console.models.guidelines import Guidelines
from console.models.rate_queue import RateQueue
from console.session.app_state import Session
from console.text.lines import fit
from console.views.agreement import disagreements, list_title, row_text, summary_lines
from console.views.rating import held_row
from console.widgets.pane import TextPane

TAG_CAP = 9
LIST_CAP = 200


def tag_names(setting: str | Sequence[str]) -> list[str]:
    """Return the reasons of the settings, at most one for each digit."""
    parts = setting.split(",") if isinstance(setting, str) else setting
    names = [one_line(part.strip(), 24) for part in parts if part.strip()]
    return list(dict.fromkeys(names))[:TAG_CAP]


class TagScreen(ModalScreen[tuple[str, ...]]):
    """Asks for the reasons of a vote; a digit sets or clears one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,w", "leave", "Done", id="tags.leave"),
        *(Binding(str(digit), f"flip({digit})", show=False) for digit in range(1, TAG_CAP + 1)),
    ]

    def __init__(self, names: Sequence[str], chosen: Sequence[str]) -> None:
        super().__init__()
        self._names = list(names)
        self._chosen = set(chosen)

    def compose(self) -> ComposeResult:
        """The reasons, numbered."""
        with Vertical(classes="dialog"):
            yield Static("Why? Recorded with the vote", markup=False, classes="dialog-title")
            yield Static(self._text(), markup=False, id="tags")
            yield Static(
                "A digit sets or clears one, Enter closes",
                markup=False,
                classes="dialog-hint",
            )

    def _text(self) -> str:
        return "\n".join(
            f"{number}  {'✓' if name in self._chosen else '·'} {name}"
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
        with Vertical(classes="dialog -wide", id="guidelines"):
            with VerticalScroll():
                yield Markdown(self._guidelines.text, open_links=False)
            yield Static(
                f"Version {self._guidelines.version} is recorded with your votes. Esc closes",
                markup=False,
                classes="dialog-hint",
            )

    def action_scroll(self, rows: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=rows, animate=False)


class HeldScreen(ModalScreen[str | None]):
    """Lists the held votes; returns the group whose vote is to be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,U,q", "leave", "Close", id="held.leave"),
    ]

    def __init__(self, session: Session, queue: RateQueue) -> None:
        super().__init__()
        self._session = session
        self._queue = queue

    def compose(self) -> ComposeResult:
        """The votes, newest first."""
        with Vertical(classes="dialog -wide", id="held"):
            yield Static("Votes that are not sent yet", markup=False, classes="dialog-title")
            yield OptionList(markup=False, compact=True)
            yield Static("Enter undoes a vote, Esc closes", markup=False, classes="dialog-hint")

    def on_mount(self) -> None:
        """Fill the list, and refresh it while the clocks run."""
        self.call_after_refresh(self._fill)
        self.set_interval(0.5, self._fill)

    def _fill(self) -> None:
        session, rows = self._session, self.query_one(OptionList)
        now, width = session.now(), max(40, rows.size.width - 3)
        held = self._queue.held(session.state, now)
        ids = [group.group_id for group in held]
        texts = [held_row(group, self._queue.vote_of(group.group_id), now) for group in held]
        if [option.id for option in rows.options] == ids:
            for group_id, text in zip(ids, texts, strict=True):
                rows.replace_option_prompt(group_id, fit(text, width))
            return
        at = rows.highlighted_option.id if rows.highlighted_option is not None else None
        rows.clear_options()
        rows_by_id = zip(ids, texts, strict=True)
        rows.add_options(Option(fit(text, width), id=group_id) for group_id, text in rows_by_id)
        if not ids:
            rows.add_option(Option("no held votes are left", disabled=True))
            return
        rows.highlighted = ids.index(at) if at in ids else 0
        rows.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the group."""
        event.stop()
        self.dismiss(event.option.id)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)


class AgreementScreen(ModalScreen[str | None]):
    """Compares the operator's votes with the automatic rewards; returns the group to open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,j,q", "leave", "Close", id="judge.leave"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._stats = session.state.raters.get(session.rater)
        self._groups = disagreements(session.state, session.rater)[:LIST_CAP]
        self._rater = session.rater

    def compose(self) -> ComposeResult:
        """Shares with their intervals, then the list."""
        who = one_line(self._rater, 30) or "you"
        with Vertical(classes="dialog -wide", id="judge"):
            yield Static(f"{who} and the automatic rewards", markup=False, classes="dialog-title")
            yield TextPane(id="judge-summary")
            yield Static(list_title(len(self._groups)), markup=False, classes="dialog-heading")
            yield OptionList(markup=False, compact=True)
            yield Static(
                "Intervals are Wilson's, 95 %. Enter opens a group, Esc closes",
                markup=False,
                classes="dialog-hint",
            )

    def on_mount(self) -> None:
        """Paint what depends on the width."""
        self.query_one("#judge-summary", TextPane).show_lines(summary_lines(self._stats))
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        rows = self.query_one(OptionList)
        width = max(40, rows.size.width - 3)
        rows.add_options(Option(row_text(one, width), id=one.group_id) for one in self._groups)
        rows.display = bool(self._groups)
        if self._groups:
            rows.highlighted = 0
            rows.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the group."""
        event.stop()
        self.dismiss(event.option.id)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)
