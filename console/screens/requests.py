"""Every request, newest on top, with what its candidates earned."""

from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from console.filters import Filter, FilterError, parse
from console.screens.group import GroupScreen
from console.screens.verbs import GroupVerbs
from console.session import EVERYTHING
from console.views import Line, fit
from console.widgets.group_detail import GroupDetail
from console.widgets.group_list import GroupList
from console.widgets.pane import Pane
from console.wrap import safe, wrapped
from core.text import one_line

BESIDE = 140
"""Cells from which the detail stands beside the list."""
_PROMPT = "/ "


class RequestsScreen(GroupVerbs):
    """The live list; Enter opens a group."""

    area: ClassVar[str] = "Requests"
    help_text: ClassVar[str] = (
        "Each line is one request and its group of candidates. Columns: answers there are, best "
        "reward, ? not scored or = equal rewards or ○ dead or ✓ rated, the winner, what the user "
        "got, how long the user waited, ★ your mark. ✂ before a request: the "
        "engine dropped the middle of its prompt (truncated:yes finds them).\n"
        "The filter takes words of the request and terms that must all hold: state:awaiting "
        'reward<0.2 text~paris dead:yes marked:yes step>=3 -rated:yes "two words".'
    )
    AUTO_FOCUS = "GroupList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "filter",
            "Find",
            key_display="/",
            id="requests.filter",
            tooltip="Filter line",
        ),
        Binding(
            "f", "follow", "Follow", show=False, id="requests.follow", tooltip="Stay on the newest"
        ),
        Binding("z", "fold", "Unfold", show=False, id="requests.fold"),
        Binding("escape", "clear", "Clear the filter", show=False, id="requests.clear"),
    ]

    def compose_body(self) -> ComposeResult:
        """Title, list, filter line; the detail beside them when there is room."""
        groups = GroupList()
        with Horizontal(id="requests"):
            with Vertical(id="requests-list"):
                yield Pane(id="requests-title")
                yield groups.titles()
                yield groups
                yield Pane(id="requests-error")
                with Horizontal(id="requests-filter"):
                    yield Pane(id="requests-prompt")
                    yield Input(compact=True, placeholder="state:awaiting reward<0.2 text~paris")
            yield GroupDetail(selectable=False, id="requests-detail")

    def on_mount(self) -> None:
        """The filter line is opened by its key."""
        self.query_one("#requests-prompt", Pane).show_lines([((_PROMPT, "bold $accent"),)])

    @property
    def groups(self) -> GroupList:
        """The list."""
        return self.query_one(GroupList)

    @property
    def detail(self) -> GroupDetail | None:
        """The detail, when it is shown."""
        found = self.query_one(GroupDetail)
        return found if self.size.width >= BESIDE else None

    @property
    def target_group(self) -> str | None:
        """The group under the cursor."""
        return self.groups.cursor

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed."""
        if dirty.isdisjoint({"*", "groups", "clock", "servers", "link", "proxy"}):
            return
        state, now = self.session.state, self.session.now()
        several = len(state.servers) > 1
        self.groups.take(state.groups, dirty, now, several)
        self._show_title()
        target = self.target_group
        if not dirty.isdisjoint({"*", "clock", f"group:{target}"}):
            self._show_detail()
        self.refresh_keys()

    def _show_title(self) -> None:
        model, groups = self.groups.model, self.groups
        shown, total = len(model.ids), model.total
        pieces: list[tuple[str, str]] = [(" Requests ", "bold $heading")]
        if model.filter:
            pieces.append((f" {shown} of {total} ", "bold"))
            pieces.append((f" {one_line(model.filter.text, 60)} ", "$accent"))
        else:
            pieces.append((f" {total} ", "$muted"))
        pieces.append(
            ("  ↑ following the newest", "$muted") if groups.follow else ("  f follows", "$muted")
        )
        self.query_one("#requests-title", Pane).show_lines([tuple(pieces)])
        groups.show_empty(() if shown else self._nothing(total))

    def _nothing(self, total: int) -> list[str]:
        if total:
            return ["No request matches the filter.", "Esc clears it."]
        url = self.session.state.proxy_url
        lines = ["No requests yet."]
        if not self.session.seen:
            return ["Nothing is known yet: there is no connection to the proxy."]
        if url:
            lines.append(f"Point your application at {one_line(url, 100)}/v1")
            lines.append("or press F4 and then s: the mock user asks the questions of a dataset.")
        else:
            lines.append("This console only watches: it serves no requests.")
        return lines

    def _show_detail(self) -> None:
        detail, group = self.detail, self.group
        self.query_one(GroupDetail).display = detail is not None and group is not None
        if detail is not None and group is not None:
            detail.show(group, self.session.now(), len(self.session.state.servers) > 1)

    def on_group_list_moved(self, event: GroupList.Moved) -> None:
        """Another group under the cursor."""
        self.refresh_keys()
        self._show_title()
        self._show_detail()

    def on_resize(self) -> None:
        """The detail comes and goes with the width."""
        self.set_class(self.size.width >= BESIDE, "-beside")
        self.call_after_refresh(self._show_detail)

    # --- keys --------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Open the group under the cursor."""
        if self.groups.cursor is not None:
            self.host.push_screen(GroupScreen(self.groups.cursor, list(self.groups.model.ids)))

    def on_group_list_opened(self, event: GroupList.Opened) -> None:
        """Enter or a second click in the list."""
        self.action_open()

    def action_follow(self) -> None:
        """Follow the newest, or stay where the cursor is."""
        self.groups.set_follow(not self.groups.follow)
        self._show_title()

    def action_fold(self) -> None:
        """Unfold the detail beside the list."""
        if self.detail is not None:
            self.detail.toggle_fold()
            self._show_detail()

    def action_filter(self) -> None:
        """Open the filter line."""
        self.add_class("-filtering")
        self.query_one(Input).focus()

    def action_clear(self) -> None:
        """Close the filter line, show everything."""
        self.query_one(Input).value = ""
        self._apply(Filter())
        self._close_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed; an error is shown under its character."""
        event.stop()
        pane = self.query_one("#requests-error", Pane)
        try:
            wanted = parse(event.value)
        except FilterError as error:
            pane.display = True
            place, what, todo = len(_PROMPT) + error.position, error.what, error.todo
            pane.show((what, todo, place), lambda width: error_lines(what, todo, place, width))
            return
        pane.display = False
        self._apply(wanted)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the filter and goes back to the list."""
        event.stop()
        self._close_filter()

    def _apply(self, wanted: Filter) -> None:
        self.groups.set_filter(wanted)
        self.update_view(EVERYTHING)

    def _close_filter(self) -> None:
        line = self.query_one(Input)
        self.query_one("#requests-error", Pane).display = False
        self.set_class(bool(line.value.strip()), "-filtering")
        self.groups.focus()


def error_lines(what: str, todo: str, place: int, width: int) -> list[Line]:
    """An error above the filter line: what is valid, then a sign over the character at fault."""
    lines: list[Line] = [((f"  {text}", "$muted"),) for text in wrapped(todo, width - 4)]
    text = f"▾ {safe(what)}"
    if place + cell_len(text) <= width:
        text = " " * place + text
    else:
        text = f"character {place - len(_PROMPT) + 1}: {safe(what)}"
    return [*lines, ((fit(text, width), "$reward-down"),)]
