"""The newest groups on the overview: a line each; Enter or a second click opens one."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from ajet_swarm.common.text import one_line, plural
from console.models.advice import context_of
from console.session.app_state import Session
from console.session.group_facts import Verdict, best_of, known_rewards, verdict_in
from console.text.format import clock, countdown, number
from console.text.lines import Line, fit
from console.text.server_color import server_colors
from console.views.group import phase_style, user_wait
from console.widgets.item_list import ItemList, ListItem
from core.state import Group

WIDE = 85
"""Cells from which a line shows more."""
SHOWN = 50
"""Most groups; the cursor scrolls to those that do not fit."""


class RecentGroups(ItemList):
    """The newest groups; the cursor is shown only while the list has the focus."""

    HELP = (
        "Enter or a second click opens the group under the cursor. The cursor follows the "
        "newest until it is moved; Home returns to the newest."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "open",
            "Open",
            show=False,
            id="overview.open",
            tooltip="The candidates of the group under the cursor",
        ),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, newest_first=True)

    def paint_groups(self, session: Session) -> None:
        """List the newest groups of the session."""
        now = session.now()
        groups = list(session.state.groups.values())[: -SHOWN - 1 : -1]
        width = self.scrollable_content_region.width
        self.show_title(newest_head(session, width or self.app.size.width))  # 0 before the layout
        now_shown = newest_items(session, groups, now, width)
        self.show_items(tuple(now_shown), lambda width: newest_items(session, groups, now, width))

    def row(self, y: int) -> tuple[Line, str]:
        """Highlight the row under the cursor only while the list has the focus."""
        line, extra = super().row(y)
        return line, extra if self.has_focus else ""

    def action_move(self, by: int) -> None:
        """Move up or down; above the first line scroll the page."""
        if by < 0 and not self.place:
            self._page.scroll_relative(y=by, animate=False)
            return
        self._page.scroll_to_widget(self, animate=False)
        super().action_move(by)

    def action_edge(self, place: int) -> None:
        """Move to the newest, or to the last."""
        if not place:
            self._page.scroll_home(animate=False)
        super().action_edge(place)

    @property
    def _page(self) -> VerticalScroll:
        return self.screen.query_one("#overview", VerticalScroll)


def newest_head(session: Session, width: int) -> Line:
    """Return the title, with the number of groups; an ellipsis marks what does not fit."""
    title, totals = "NEWEST GROUPS", session.state.totals
    if not session.state.groups:
        return ((title, "bold $heading"),)
    counts = [plural(totals.groups, "group"), f"{totals.done} finished", f"{totals.dead} dead"]
    others = {"lost": totals.lost, "failed": totals.failed, "aborted": totals.aborted}
    counts += [f"{count} {name}" for name, count in others.items() if count]
    text = fit(f"  {' · '.join(counts)}", max(0, width - len(title))).rstrip()
    return ((title, "bold $heading"), (text, "$muted"))


def newest_items(
    session: Session, groups: Sequence[Group], now: float, width: int
) -> list[ListItem]:
    """Return a line for each group; the first steps while there is none."""
    if not groups:
        url = one_line(session.state.proxy_url, 200) or "the proxy"
        context = context_of(session)
        digit, key = context.screens["mock"], context.keys["mock.start"]
        hints = (
            f"No request yet. Press {digit} then {key} to start the mock user,",
            f"or send one to {url}/v1",
        )
        if session.state.watch_only:
            hints = ("This console is view only: it serves no requests.", "")
        elif session.read_only:
            hints = (f"No request yet. They go to {url}/v1", "")
        return [ListItem("", tuple(((fit(hint, width), "$muted"),) for hint in hints))]
    tones = server_colors(session.state)
    return [
        ListItem(
            group.group_id,
            (_line(group, verdict_in(session.state, group), now, width, tones),),
        )
        for group in groups
    ]


def _line(group: Group, outcome: Verdict, now: float, width: int, tones: dict[str, str]) -> Line:
    style = phase_style(group)
    best = best_of(group)
    values = known_rewards(group)
    top = values[best] if best is not None and best < len(values) else None
    word = style.word
    if group.phase == "AWAITING_RATING" and group.until is not None:
        word = f"rate {countdown(group.until - now)}"
        if group.user_waits and group.rating is None:
            word = f"waits {user_wait(group, now)}"
    row = [
        (f"{clock(group.opened_at)}  ", "$muted"),
        (f"{style.sign} {fit(word, 11)} ", style.tone),
        (f"{number(top):>5} ", "bold" if top is not None else "$faint"),
    ]
    if width >= WIDE:
        row.append((f" {outcome.sign} {fit(outcome.text, 24)} ", outcome.tone))
        if tones:
            name = fit(one_line(group.server, 20), 10)
            row.append((f"{name} ", tones.get(group.server, "$muted")))
    else:
        row.append((f"{outcome.sign} ", outcome.tone))
    query = one_line(group.query, 300) or "(no text)"
    row.append(
        (fit(query, width - sum(len(text) for text, _ in row)), "" if group.query else "$muted")
    )
    return tuple(row)
