"""Dialog about several raters: presence, pace, agreement, disagreements to settle."""

import asyncio
from typing import ClassVar, Literal, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from console.models.rating.raters import (
    RaterAgreement,
    agreement_of,
    disagreements,
    judged_votes,
    rater_rows,
)
from console.session.app_state import Session
from console.text.lines import fit
from console.views.raters import disagreement_row, rater_lines
from console.widgets.pane import TextPane
from core.state import Group

LIST_CAP = 200


class DisagreementChoice(NamedTuple):
    """What to do with a disagreement."""

    action: Literal["open", "settle"]
    group_id: str


class RatersScreen(ModalScreen[DisagreementChoice | None]):
    """Shows the raters and their disagreements; returns the one to open or to settle."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,r,q", "leave", "Close", id="raters.leave"),
        Binding("s", "settle", "Settle", id="raters.settle", tooltip="Cast the decisive vote"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._agreement: RaterAgreement | None = None

    def compose(self) -> ComposeResult:
        """The table of raters, their agreement, the list of disagreements."""
        with Vertical(classes="dialog -wide", id="raters"):
            yield Static("Raters", markup=False, classes="dialog-title")
            yield TextPane(id="raters-summary")
            yield OptionList(markup=False, compact=True)
            yield Static(
                "s settles a disagreement, Enter opens its group, Esc closes",
                markup=False,
                classes="dialog-hint",
            )

    def on_mount(self) -> None:
        """Compute the agreement once; repaint the rest every second."""
        self.run_worker(self._compute(), group="agreement", exit_on_error=False)
        self.call_after_refresh(self._fill)
        self.set_interval(1.0, self._fill)

    async def _compute(self) -> None:
        votes = judged_votes(self._session.state)
        self._agreement = await asyncio.to_thread(agreement_of, votes)
        self._fill()

    def _groups(self) -> list[Group]:
        """Return the disagreements, without groups on which this rater has still to vote."""
        session = self._session
        return [
            group
            for group in disagreements(session.state)
            if group.sealed_at is not None or not group.needs_vote_of(session.rater, session.holder)
        ][:LIST_CAP]

    def _fill(self) -> None:
        session, rows = self._session, self.query_one(OptionList)
        now, groups = session.now(), self._groups()
        lines = rater_lines(rater_rows(session.state, now), self._agreement, len(groups))
        self.query_one("#raters-summary", TextPane).show_lines(lines)
        rows.display = bool(groups)
        width, ids = max(40, rows.size.width - 3), [group.group_id for group in groups]
        texts = [fit(disagreement_row(group, width), width) for group in groups]
        if [option.id for option in rows.options] == ids:
            for group_id, text in zip(ids, texts, strict=True):
                rows.replace_option_prompt(group_id, text)
            return
        at = rows.highlighted_option.id if rows.highlighted_option is not None else None
        rows.clear_options()
        rows.add_options(
            Option(text, id=group_id) for group_id, text in zip(ids, texts, strict=True)
        )
        if ids:
            rows.highlighted = ids.index(at) if at in ids else 0
            rows.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with the group to open."""
        event.stop()
        if event.option.id is not None:
            self.dismiss(DisagreementChoice("open", event.option.id))

    def action_settle(self) -> None:
        """Close with the group to settle."""
        option = self.query_one(OptionList).highlighted_option
        if option is not None and option.id is not None:
            self.dismiss(DisagreementChoice("settle", option.id))

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)
