"""Jump mode: a letter on each target."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Offset, Region, Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.key_area import KeyArea
from console.widgets.status_bar import StatusBar

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""Letters, home row first."""
ROWS = 9
"""Rows of a list that get a letter of their own."""


@runtime_checkable
class Parts(Protocol):
    """A widget with parts to jump to."""

    def jumps(self) -> Sequence[tuple[Widget, Callable[[], Any]]]:
        """Return the parts on screen, each with what a jump to it does; it never votes."""


@dataclass(frozen=True, slots=True)
class JumpTarget:
    """A part of the screen that a letter jumps to."""

    at: Offset
    """Where its letter is shown, in cells of the screen."""
    go: Callable[[], Any]
    label: str = ""
    """Name shown beside the letter at the bottom, for a target out of sight."""


def targets(screen: Screen[Any]) -> list[JumpTarget]:
    """Return everything in sight that can be focused or chosen, from top left to bottom right."""
    all_targets = [target for widget in _in_sight(screen) for target in _targets_of(widget, screen)]
    placed: dict[Offset, JumpTarget] = {}
    for target in sorted(all_targets, key=lambda all_target: (all_target.at.y, all_target.at.x)):
        placed.setdefault(target.at, target)
    bars = (target for widget in screen.query(StatusBar) for target in _named_below(widget))
    return [*placed.values(), *bars]


def names(count: int) -> list[str]:
    """Return `count` distinct names of equal length: letters, or pairs when they run out.

    Returns fewer names when there are not enough pairs.
    """
    if count <= len(LETTERS):
        return list(LETTERS[:count])
    pairs = [first + second for first in LETTERS for second in LETTERS]
    return pairs[:count]


def _in_sight(screen: Screen[Any]) -> Iterator[Widget]:
    """Return widgets with at least one cell that is not scrolled away or hidden."""
    for widget in screen.query(Widget):
        if not widget.is_on_screen or not _visible_region(widget, screen):
            continue
        if isinstance(widget, StatusBar | Parts) or _takes_keys(widget):
            yield widget


def _takes_keys(widget: Widget) -> bool:
    """Return whether a widget takes keys; a scroll container does unless its content does."""
    if not widget.focusable or isinstance(widget, KeyArea):
        return False
    frame = isinstance(widget, VerticalScroll)
    return not (frame and any(child.focusable for child in widget.query(Widget)))


def _visible_region(widget: Widget, screen: Screen[Any]) -> Region:
    region = widget.region.intersection(screen.region)
    for parent in widget.ancestors:
        if isinstance(parent, Widget) and parent is not screen:
            region = region.intersection(parent.region)
    return region


def _targets_of(widget: Widget, screen: Screen[Any]) -> Iterable[JumpTarget]:
    seen = _visible_region(widget, screen)
    if isinstance(widget, StatusBar):
        return _tabs(widget)
    if isinstance(widget, Parts):
        return _parts(widget, screen)
    if isinstance(widget, ItemList) and (items := _items(widget, seen)):
        return items
    return [JumpTarget(_cell_before(seen.offset), partial(widget.focus))]


def _cell_before(at: Offset) -> Offset:
    """Return the cell to the left, if any, so that the letter covers no text."""
    return Offset(max(0, at.x - 1), at.y)


def _tabs(bar: StatusBar) -> list[JumpTarget]:
    """Return the tabs of the status bar."""
    here = bar.region
    return [
        JumpTarget(Offset(here.x + place, here.y), partial(bar.app.run_action, f"app.go('{name}')"))
        for place, name in bar.tab_cells()
    ]


def _named_below(bar: StatusBar) -> list[JumpTarget]:
    """Return the screens whose tabs do not fit into the status bar."""
    in_bar = {name for _, name in bar.tab_cells()}
    return [
        JumpTarget(
            Offset(0, 0), partial(bar.app.run_action, f"app.go('{place.name}')"), place.title
        )
        for place in bar.others
        if place.name not in in_bar
    ]


def _parts(parts: Parts, screen: Screen[Any]) -> list[JumpTarget]:
    """Return the parts in sight."""
    return [
        JumpTarget(seen.offset, go)
        for part, go in parts.jumps()
        if (seen := _visible_region(part, screen))
    ]


def _items(items: ItemList, seen: Region) -> list[JumpTarget]:
    """Return the first items in sight of a list whose items may take several rows."""
    at = items.content_region
    all_targets = [
        JumpTarget(_cell_before(Offset(at.x, at.y + row)), partial(_move_to_item, items, place))
        for row, place in items.first_rows()
        if seen.contains(at.x, at.y + row)
    ]
    return all_targets[:ROWS]


def _move_to_item(items: ItemList, place: int) -> None:
    """Put the cursor on an item."""
    items.focus()
    items.action_move(place - items.place)


class JumpScreen(ModalScreen[JumpTarget | None]):
    """Returns the chosen target; any key that is not one of its letters cancels."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    BINDINGS: ClassVar[list[BindingType]] = keys(("escape", "dismiss", "Leave", "jump.leave"))

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        all_targets = targets(below)
        self.named = dict(zip(names(len(all_targets)), all_targets, strict=False))
        """The targets by their letters."""
        self._typed = ""
        self._size_at_start: Size | None = None

    def compose(self) -> ComposeResult:
        """One mark for each target, and a line of help."""
        for name, target in self.named.items():
            if target.label:
                continue
            mark = Static(name.upper(), markup=False, classes="jump")
            mark.styles.offset = target.at
            yield mark
        yield Static(self._hint(), id="jump-hint")

    def _hint(self) -> Content:
        """Return the line of help, with the letters of targets out of sight."""
        named = [(name, target.label) for name, target in self.named.items() if target.label]
        if not self.named:
            return Content("Nothing to jump to")
        if not named:
            return Content("A letter jumps to its target, Esc cancels")
        pieces: list[tuple[str, str]] = []
        for name, label in named:
            pieces += [(name.upper(), "bold $accent"), (f" {label} ", "")]
        return Content.assemble(*pieces, "Esc")

    def on_key(self, event: events.Key) -> None:
        """Jump to the target of a letter; a pair of letters needs the second one."""
        if event.key == "escape":
            return
        event.stop()
        event.prevent_default()
        self._typed += (event.character or " ").lower()
        if (target := self.named.get(self._typed)) is not None:
            self.dismiss(target)
            return
        remaining = [name for name in self.named if name.startswith(self._typed)]
        if not remaining:
            self.dismiss(None)
            return
        for mark in self.query(".jump").results(Static):
            mark.display = str(mark.content).lower().startswith(self._typed)

    def on_click(self) -> None:
        """Cancel on a click."""
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """Cancel: the targets have moved."""
        if self._size_at_start is not None and event.size != self._size_at_start:
            self.dismiss(None)
        self._size_at_start = event.size
