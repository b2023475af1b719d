"""The status line at the top of every screen."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widgets import Static

from ajet_swarm.common.text import one_line
from console.models.alerts import alerts_by_urgency
from console.models.screen_registry import ScreenSpec, shown_screens
from console.session.app_state import Session
from console.session.server_facts import as_ended
from console.text.format import UNKNOWN, countdown, elapsed, pill, plural, progress, state_text
from console.views.group import user_wait
from core.state import Group, Server

BRIEF_WIDTH = 74
"""Cells that the bar needs in its brief form; the tabs of the screens get the rest."""
_GAP = Content.styled("  ", "")


@dataclass(frozen=True, slots=True)
class StatusItem:
    """One piece of the bar, in forms from long to short; the last form may be empty."""

    forms: tuple[Content, ...]
    keeps: tuple[int, ...] = ()
    """One rank per shorter form; a higher rank is used later."""


def bar_line(session: Session, width: int) -> Content:
    """Return the bar, with lesser parts shortened and dropped until it fits `width` cells."""
    items = _items(session)
    level = [0] * len(items)
    while _width(items, level) > width:
        steps = [
            (item.keeps[level[place]], -place)
            for place, item in enumerate(items)
            if level[place] < len(item.keeps)
        ]
        if not steps:
            break
        level[-min(steps)[1]] += 1
    return Content(" ") + _GAP.join(_shown(items, level))


def _shown(items: Sequence[StatusItem], level: Sequence[int]) -> list[Content]:
    forms = [item.forms[at] for item, at in zip(items, level, strict=True)]
    return [form for form in forms if form.cell_length]


def _width(items: Sequence[StatusItem], level: Sequence[int]) -> int:
    shown = _shown(items, level)
    return 1 + sum(form.cell_length for form in shown) + (len(shown) - 1) * len(_GAP.plain)


def _items(session: Session) -> list[StatusItem]:
    servers = list(session.state.servers.values())
    items = _link(session)
    if session.seen:
        items += _server(session, servers)
        items += _alerts(session) if session.state.watch_only else _groups(session)
    return items


def _link(session: Session) -> list[StatusItem]:
    items = []
    if session.replay is not None:
        forms = tuple(pill(form, "$engine-exporting") for form in session.replay.forms)
        return [StatusItem(forms, tuple(7 + 2 * at for at in range(len(forms) - 1)))]
    if session.read_only:
        words = ("watching", "W") if session.state.watch_only else ("read-only", "RO")
        forms = tuple(Content.styled(word, "$muted") for word in words)
        items.append(StatusItem(forms, (3,)))
    elif session.identity.name:
        name, role = session.identity.name, session.identity.role
        forms = tuple(Content.styled(word, "$muted") for word in (f"{name}, {role}", name))
        items.append(StatusItem(forms, (3,)))
    if not session.seen:
        items += _starting(session)
    elif (age := session.stale_for) is not None:
        items.append(StatusItem((pill(f"STALE {elapsed(age)}", "$engine-lost"),)))
        why = Content.styled(one_line(session.trouble, 70), "$engine-lost")
        refused = Content.styled(one_line(session.refused, 60), "$engine-lost")
        items.append(StatusItem((why, refused, Content("")), (0, 9)))
    elif not session.state.proxy_up:
        items.append(StatusItem((pill("PROXY STOPPED", "$engine-lost"),)))
    return items


def _starting(session: Session) -> list[StatusItem]:
    failed = session.failed_steps
    if not failed:
        why = one_line(session.trouble or "starting the engine and the proxy", 60)
        head = pill("STARTING", "$engine-booting")
        return [StatusItem((head,)), StatusItem((Content.styled(why, "$muted"), Content("")), (0,))]
    names = " and ".join(one_line(step.title, 40) for step in failed)
    forms = (
        Content.styled(f"{names}: {one_line(failed[-1].detail, 60)}", "$engine-lost"),
        Content.styled(one_line(failed[-1].detail or names, 60), "$engine-lost"),
        Content.styled(one_line(failed[-1].detail or names, 30), "$engine-lost"),
        Content(""),
    )
    return [StatusItem((pill("START FAILED", "$engine-lost"),)), StatusItem(forms, (0, 0, 0))]


def _server(session: Session, servers: Sequence[Server]) -> list[StatusItem]:
    if not servers:
        return [StatusItem((Content.styled("no server", "$muted"),))]
    server, now = as_ended(servers[0], session), session.now()
    more = f" +{len(servers) - 1}" if len(servers) > 1 else ""
    name = one_line(server.name, 24)
    named = Content.assemble((name, "bold $server-1"), (more, "$muted"))
    brief = Content.assemble((name[:8], "bold $server-1"), (more, "$muted"))
    items = [StatusItem((named, brief, Content("")), (2, 8))]
    shown = state_text(server, now if server.lost else session.as_of)
    forms = tuple(pill(form, shown.color) for form in shown.forms)
    items.append(StatusItem(forms, (7, 7) if server.lost else (5,)))
    step = UNKNOWN if server.step is None else str(server.step)
    items.append(StatusItem((_pair("step", step), Content("")), (9,)))
    done = progress(server.pool)
    if done is None:
        items.append(StatusItem((_pair("pool", UNKNOWN), Content("")), (2,)))
    else:
        short = done.text().split(" ")[0]
        items.append(StatusItem((_value(done.text()), _pair("pool", short), _value(short)), (3, 5)))
    return items


def _groups(session: Session) -> list[StatusItem]:
    state, now = session.state, session.now()
    own = session.rater, session.holder
    waiting = [group for group in state.waiting() if group.needs_vote_of(*own)]
    in_flight = sum(
        group.phase != "AWAITING_RATING" or group.user_waits for group in state.open_groups()
    )
    items = [StatusItem((_value(f"{in_flight} in flight"), Content("")), (6,))]
    forms: tuple[str, ...]
    if waiting and waiting[0].user_waits:
        time_in = user_wait(min(waiting, key=_longest_wait), now)
        users = sum(group.user_waits for group in waiting)
        who = "user waits" if users == 1 else f"{users} users wait"
        forms = (
            f"★ {len(waiting)} to rate, {who} {time_in}",
            f"★ {who} {time_in}",
            f"★ {len(waiting)} {time_in}",
        )
        items.append(
            StatusItem(tuple(Content.styled(form, "bold $winner") for form in forms), (5, 9))
        )
    elif waiting:
        left = waiting[0].until
        time_left = f" {countdown(left - now)}" if left is not None else ""
        forms = (f"★ {len(waiting)} to rate{time_left}", f"★ {len(waiting)}{time_left}")
        items.append(
            StatusItem(tuple(Content.styled(form, "bold $winner") for form in forms), (6,))
        )
    else:
        items.append(StatusItem((_value("0 to rate"), Content("")), (1,)))
    return [*items, *_alerts(session)]


def _longest_wait(group: Group) -> tuple[bool, float]:
    """Sort key: the held group whose user came first."""
    return not group.user_waits, group.opened_at


def _alerts(session: Session) -> list[StatusItem]:
    if alerts := alerts_by_urgency(session):
        errors = any(alert.level == "error" for alert in alerts)
        color = "bold $engine-lost" if errors else "bold $engine-booting"
        forms = (f"! {plural(len(alerts), 'alert')}", f"!{len(alerts)}")
        return [StatusItem(tuple(Content.styled(form, color) for form in forms), (3,))]
    return []


def _pair(label: str, value: str) -> Content:
    return Content.assemble((f"{label} ", "$muted"), (value, "bold"))


def _value(text: str) -> Content:
    head, _, tail = text.partition(" ")
    return Content.assemble((head, "bold"), (f" {tail}" if tail else "", "$muted"))


def tab_text(place: ScreenSpec, present: str, *, brief: bool = False) -> str:
    """Return the label of a screen in the bar; that of the present one ends with a space.

    Args:
        place: The screen.
        present: Name of the present screen.
        brief: Whether the others are shown by their digits alone.
    """
    if place.name == present:
        return f" {place.digit} {place.title} "
    return f" {place.digit}" if brief else f" {place.digit} {place.title}"


def tabs(places: Sequence[ScreenSpec], present: str, *, brief: bool = False) -> Content:
    """Return the screens with their digits; the present one is highlighted."""
    pieces: list[Content] = []
    for place in places:
        label = tab_text(place, present, brief=brief)
        if place.name == present:
            pieces.append(Content.assemble((label, "bold reverse")))
        else:
            pieces.append(Content.assemble((label[:3], "$accent"), (label[3:], "$muted")))
    return Content("").join(pieces)


class StatusBar(Static):
    """One line: server, engine state, step, pool, groups, ratings, alerts; screens if they fit."""

    DEFAULT_CSS = """
    StatusBar {
        dock: top; height: 1; background: $panel; color: $foreground;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self, places: Sequence[ScreenSpec] = (), present: str = "") -> None:
        super().__init__(markup=False)
        self._session: Session | None = None
        self._all, self._own = list(places), present
        self._places: list[ScreenSpec] = []
        self.others: list[ScreenSpec] = []
        """The screens of the bar except the present one."""
        self._brief = False
        """Whether the screens are shown by their digits alone, for want of room."""
        self._forms: dict[bool, Content] = {}
        self._set_tabs(self._all)
        self._tabs_from: int | None = None
        """Cell in which the screens start; None while there is no room for them."""

    def _set_tabs(self, places: Sequence[ScreenSpec]) -> None:
        """Show tabs of these screens; those above 8 only if current, or if some are hidden."""
        present = self._own
        few = len(places) < len(self._all)
        named = [one for one in places if few or one.number < 9 or one.name == present]
        if named != self._places:
            self._places = named
            self.others = [one for one in named if one.name != present]
            self._forms = {brief: tabs(named, present, brief=brief) for brief in (False, True)}

    def show(self, session: Session) -> None:
        """Paint the current state."""
        self._session = session
        self._set_tabs(shown_screens(self._all, session.state))
        width = max(1, self.size.width)
        beside = width - self._forms[False].cell_length - 3
        self._brief = beside < BRIEF_WIDTH
        # Digits alone take only cells that the whole bar leaves.
        line = bar_line(session, width if self._brief else beside)
        chosen = self._forms[self._brief]
        spare = width - line.cell_length - chosen.cell_length - 1
        self._tabs_from = line.cell_length + spare if spare > 2 else None
        if spare > 2:
            line = Content.assemble(line, " " * spare, chosen)
        self.update(line, layout=False)

    def tab_cells(self) -> list[tuple[int, str]]:
        """Return cell and name of each screen in the bar."""
        cells: list[tuple[int, str]] = []
        at = self._tabs_from
        for place in self._places if at is not None else ():
            cells.append((at or 0, place.name))
            at = (at or 0) + cell_len(tab_text(place, self._own, brief=self._brief))
        return cells

    async def on_click(self, event: events.Click) -> None:
        """Open the screen whose name was clicked."""
        under = [name for at, name in self.tab_cells() if at <= event.x]
        if under:
            await self.app.run_action(f"app.go('{under[-1]}')")

    def on_resize(self) -> None:
        """Fit the bar to another width."""
        if self._session is not None:
            self.show(self._session)
