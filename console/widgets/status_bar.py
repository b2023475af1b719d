"""The status line at the top of every screen."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widgets import Static

from ajet_swarm.common.text import one_line, plural
from console.models.alerts import alerts_by_urgency
from console.models.screen_registry import ScreenSpec, shown_screens
from console.session.app_state import Session
from console.session.server_facts import as_ended
from console.text.format import UNKNOWN, countdown, elapsed, progress, state_text
from console.text.sections import pill
from console.views.group import user_wait
from core.state import Group, Server

LEAST_WIDTHS = (58, 58, 0)
"""Cells that the bar keeps beside each form of the screens."""
_GAP = Content.styled("  ", "")


@dataclass(frozen=True, slots=True)
class StatusItem:
    """One piece of the bar, in forms from long to short; the last form may be empty."""

    forms: tuple[Content, ...]
    keeps: tuple[int, ...] = ()
    """One rank per shorter form; a higher rank is used later."""


def _styled(tone: str, forms: Sequence[str], *keeps: int) -> StatusItem:
    """Return a piece of one tone."""
    return StatusItem(tuple(Content.styled(form, tone) for form in forms), keeps)


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
        items.append(_styled("$muted", words, 3))
    elif session.identity.name:
        name, role = session.identity.name, session.identity.role
        items.append(_styled("$muted", (f"{name}, {role}", name), 3))
    if not session.seen:
        items += _starting(session)
    elif (age := session.stale_for) is not None:
        items.append(StatusItem((pill(f"STALE {elapsed(age)}", "$engine-lost"),)))
        why = (one_line(session.trouble, 70), one_line(session.refused, 60), "")
        items.append(_styled("$engine-lost", why, 6, 9))
    elif not session.state.proxy_up:
        items.append(StatusItem((pill("PROXY STOPPED", "$engine-lost"),)))
    return items


def _starting(session: Session) -> list[StatusItem]:
    failed = session.failed_steps
    if not failed:
        why = one_line(session.trouble or "starting the engine and the proxy", 60)
        head = pill("STARTING", "$engine-booting")
        return [StatusItem((head,)), _styled("$muted", (why, ""), 0)]
    names = " and ".join(one_line(step.title, 40) for step in failed)
    why = failed[-1].detail or names
    long = f"{names}: {one_line(failed[-1].detail, 60)}"
    forms = (long, one_line(why, 60), one_line(why, 30), "")
    title = StatusItem((pill("START FAILED", "$engine-lost"),))
    return [title, _styled("$engine-lost", forms, 0, 0, 0)]


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
    items.append(StatusItem(forms, (7, 7) if server.lost else (6,)))
    step = UNKNOWN if server.step is None else str(server.step)
    items.append(StatusItem((_pair("step", step), Content("")), (9,)))
    done = progress(server.pool)
    if done is None:
        items.append(StatusItem((_pair("pool", UNKNOWN), Content("")), (2,)))
    else:
        short = done.text().split(" ")[0]
        items.append(StatusItem((_value(done.text()), _pair("pool", short), _value(short)), (3, 4)))
    return items


def _groups(session: Session) -> list[StatusItem]:
    state, now = session.state, session.now()
    own = session.rater, session.holder
    waiting = [group for group in state.waiting() if group.needs_vote_of(*own)]
    in_flight = sum(
        group.phase != "AWAITING_RATING" or group.user_waits for group in state.open_groups()
    )
    items = [StatusItem((_value(f"{in_flight} in flight"), Content("")), (5,))]
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
        items.append(_styled("bold $winner", forms, 5, 9))
    elif waiting:
        left = waiting[0].until
        time_left = f" {countdown(left - now)}" if left is not None else ""
        forms = (f"★ {len(waiting)} to rate{time_left}", f"★ {len(waiting)}{time_left}")
        items.append(_styled("bold $winner", forms, 7))
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
        return [_styled(color, (f"! {plural(len(alerts), 'alert')}", f"!{len(alerts)}"), 3)]
    return []


def _pair(label: str, value: str) -> Content:
    return Content.assemble((f"{label} ", "$muted"), (value, "bold"))


def _value(text: str) -> Content:
    head, _, tail = text.partition(" ")
    return Content.assemble((head, "bold"), (f" {tail}" if tail else "", "$muted"))


def tab_forms(
    places: Sequence[ScreenSpec], present: str, prefix: str = ""
) -> list[list[tuple[str, str]]]:
    """Return the screens of the bar as (name, label), in forms from wide to narrow.

    All with their titles; the titles of the present screen and its neighbours with the keys of the
    others; the present title with the keys of its neighbours.

    Args:
        places: The screens.
        present: Name of the present screen; its label begins and ends with a space.
        prefix: `F` where digits vote, so that function keys open the screens.
    """
    names = [place.name for place in places]
    here = names.index(present) if present in names else 0
    forms: list[list[tuple[str, str]]] = []
    for titled, keyed in ((len(places), len(places)), (1, len(places)), (0, 1)):
        labels = []
        for at, place in enumerate(places):
            key = f"{prefix}{place.number}" if prefix else f"{place.digit}"
            if place.name == present:
                labels.append((place.name, f" {key} {place.title} "))
            elif abs(at - here) <= titled:
                labels.append((place.name, f" {key} {place.title}"))
            elif abs(at - here) <= keyed:
                labels.append((place.name, f" {key}"))
        forms.append(labels)
    return forms


def tabs(labels: Sequence[tuple[str, str]], present: str) -> Content:
    """Return the screens with their keys; the present one is highlighted."""
    pieces: list[Content] = []
    for name, label in labels:
        key, _, title = label[1:].partition(" ")
        if name == present:
            pieces.append(Content.assemble((label, "bold reverse")))
        else:
            title = f" {title}" if title else ""
            pieces.append(Content.assemble((f" {key}", "$accent"), (title, "$muted")))
    return Content("").join(pieces)


class StatusBar(Static):
    """One line: server, engine state, step, pool, groups, ratings, alerts; then the screens."""

    DEFAULT_CSS = """
    StatusBar {
        dock: top; height: 1; background: $panel; color: $foreground;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(
        self, places: Sequence[ScreenSpec] = (), present: str = "", prefix: str = ""
    ) -> None:
        """Create an empty bar; the arguments are those of `tab_forms`."""
        super().__init__(markup=False)
        self._session: Session | None = None
        self._places, self._present, self._prefix = list(places), present, prefix
        self._labels: Sequence[tuple[str, str]] = ()
        self._tabs_from = 0
        """Cell in which the screens start."""

    @property
    def others(self) -> list[ScreenSpec]:
        """The screens except the present one."""
        shown = shown_screens(self._places, self._session.state) if self._session else []
        return [place for place in shown if place.name != self._present]

    def show(self, session: Session) -> None:
        """Paint the current state."""
        self._session = session
        width = max(1, self.size.width)
        places = shown_screens(self._places, session.state)
        if not places:
            self.update(bar_line(session, width), layout=False)
            return
        forms = list(zip(tab_forms(places, self._present, self._prefix), LEAST_WIDTHS, strict=True))
        if not session.seen or session.stale_for is not None:
            del forms[:-1]  # the reason needs the room
        for form, least in forms:
            labels = tabs(form, self._present)
            beside = width - labels.cell_length - 1
            if beside >= least:
                break
        line = bar_line(session, beside)
        self._labels, self._tabs_from = form, max(line.cell_length, beside) + 1
        gap = " " * (self._tabs_from - line.cell_length)
        self.update(Content.assemble(line, gap, labels), layout=False)

    def tab_cells(self) -> list[tuple[int, str]]:
        """Return cell and name of each screen in the bar."""
        cells: list[tuple[int, str]] = []
        at = self._tabs_from
        for name, label in self._labels:
            cells.append((at, name))
            at += cell_len(label)
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
