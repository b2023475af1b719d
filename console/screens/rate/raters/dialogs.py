"""Dialogs about raters: presence, pace, agreement, disagreements."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import OptionList, Static

from ajet_swarm.common.text import one_line
from console.screens.rate.dialogs import GroupChoice, GroupsScreen
from console.screens.rate.raters.model import (
    RaterAgreement,
    agreement_of,
    disagreements,
    judged_votes,
    rater_rows,
    reward_disagreements,
)
from console.screens.rate.raters.text import (
    disagreement_row,
    list_title,
    rater_lines,
    row_text,
    summary_lines,
)
from console.session.app_state import Session
from console.widgets.pane import TextPane

LIST_CAP = 200
"""Most groups in a list."""


class RatersScreen(GroupsScreen):
    """Shows the raters and their disagreements; returns the one to open or to settle."""

    ID = "raters"
    heading = "Raters"
    HINT = "s settles a disagreement, Enter opens its group, Esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,r,q", "dismiss", "Close", id="raters.leave"),
        Binding("s", "settle", "Settle", id="raters.settle", tooltip="Cast the decisive vote"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._agreement: RaterAgreement | None = None

    def above(self) -> Iterable[Widget]:
        yield TextPane(id="raters-summary")

    def on_mount(self) -> None:
        """Compute the agreement once."""
        self.run_worker(self._compute(), group="agreement", exit_on_error=False)

    async def _compute(self) -> None:
        votes = judged_votes(self._session.state)
        self._agreement = await asyncio.to_thread(agreement_of, votes)
        self.fill()

    def rows(self, width: int) -> Sequence[tuple[str, str]]:
        """Return the disagreements, without groups on which this rater has still to vote."""
        session = self._session
        groups = [
            group
            for group in disagreements(session.state)
            if group.sealed_at is not None or not group.needs_vote_of(session.rater, session.holder)
        ][:LIST_CAP]
        raters = rater_rows(session.state, session.now())
        lines = rater_lines(raters, self._agreement, len(groups))
        self.query_one("#raters-summary", TextPane).show_lines(lines)
        return [(group.group_id, disagreement_row(group, width)) for group in groups]

    def action_settle(self) -> None:
        """Close with the group to settle."""
        option = self.query_one(OptionList).highlighted_option
        if option is not None and option.id is not None:
            self.dismiss(GroupChoice(option.id, "settle"))


class AgreementScreen(GroupsScreen):
    """Compares the operator's votes with the automatic rewards; returns the group to open."""

    ID = "judge"
    HINT = "Intervals are Wilson's, 95 %. Enter opens a group, Esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,j,q", "dismiss", "Close", id="judge.leave"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.heading = f"{one_line(session.rater, 30) or 'you'} and the automatic rewards"
        self._stats = session.state.raters.get(session.rater)
        self._groups = reward_disagreements(session.state, session.rater)[:LIST_CAP]

    def above(self) -> Iterable[Widget]:
        yield TextPane(id="judge-summary")
        yield Static(list_title(len(self._groups)), markup=False, classes="dialog-heading")

    def rows(self, width: int) -> Sequence[tuple[str, str]]:
        self.query_one("#judge-summary", TextPane).show_lines(summary_lines(self._stats))
        return [(group.group_id, row_text(group, width)) for group in self._groups]
