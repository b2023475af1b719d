"""A group on screen: its head, and its candidates as the size allows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message

from console.screens.group.card import Card, body, cards, compared, head, share_heights
from console.screens.group.model import WholeAnswer
from console.screens.group.text import DetailOptions, header_lines, tabs_line
from console.session.group_facts import verdict_in
from console.text.lines import Line
from console.text.server_color import group_color
from console.views.rewards.bars import bar_lines
from console.widgets.pane import TextPane
from console.widgets.section import host
from core.state import Group

COLUMN = 34
"""Minimum cells of a card beside others."""
FRAMED = 37
"""Cells from which a card beside others has a border."""
HEAD = 60
"""Cells for which the head of a card in the border is built."""
SLOTS = 16
"""Most cards on screen; the selection scrolls through more."""


def _in_border(line: Line) -> list[tuple[str, str]]:
    """Return a card's head without the padding of its row."""
    pieces = [(text if text.strip() else " ", tone) for text, tone in line]
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    return [*pieces[:-1], (pieces[-1][0].rstrip(), pieces[-1][1])] if pieces else []


class Candidates(Container):
    """Shows the cards of one group.

    If they do not fit side by side, `stack` stacks them and shares the height between them;
    otherwise as many as fit are shown side by side, around the selected one.
    """

    DEFAULT_CSS = """
    Candidates { height: 1fr; layout: horizontal; }
    Candidates.-stacked { layout: vertical; }
    Candidates > TextPane { width: 1fr; height: 1fr; margin: 0 1 0 0; }
    Candidates.-stacked > TextPane { margin: 0; }
    Candidates.-framed > TextPane {
        margin: 0; border: round $faint; border-title-color: $foreground;
    }
    Candidates.-framed > TextPane.-selected { border: round $accent; }
    """

    class Chosen(Message):
        """A card was clicked."""

        def __init__(self, place: int, *, twice: bool = False) -> None:
            super().__init__()
            self.place = place
            self.twice = twice
            """It is the second click on the card, within half a second."""

    def __init__(self, stack: bool = False, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.stack = stack
        self.zoomed = False
        """Only the selected card is shown."""
        self._cards: list[Card] = []
        self._selected: int | None = None

    @property
    def cards(self) -> Sequence[Card]:
        """The cards, by place."""
        return self._cards

    @property
    def selected(self) -> int | None:
        """Place of the selected card; None without a selection."""
        return self._selected

    def show_cards(self, cards: Sequence[Card], selected: int | None) -> None:
        """Show these cards; unchanged cards are not painted again."""
        self._cards = list(cards)
        count = len(self._cards)
        self._selected = None if selected is None or not count else min(selected, count - 1)
        self._arrange()

    def select(self, place: int | None) -> None:
        """Select a card, or none."""
        self.show_cards(self._cards, place)

    def reset(self) -> None:
        """Show the answers of another group: all of them, from their first lines, none selected."""
        self.zoomed = False
        for pane in self.query_children(TextPane):
            pane.scroll_home(animate=False, immediate=True)
        self.select(None)

    def toggle_zoom(self) -> None:
        """Give the selected card the whole size, or share it again."""
        self.zoomed = not self.zoomed
        self._arrange()

    def scroll_selected(self, rows: int) -> None:
        """Scroll the selected card, or the first one."""
        for pane, place in self._visible():
            if place == (self._selected or 0):
                pane.scroll_relative(y=rows, animate=False, immediate=True)

    @property
    def columns(self) -> int:
        """The number of cards that fit side by side."""
        return max(1, self.size.width // COLUMN)

    @property
    def side_by_side(self) -> bool:
        """Whether all cards fit beside each other."""
        return self.columns >= min(len(self._cards), SLOTS) and not self.zoomed

    def fits(self, rows: int) -> bool:
        """Return whether no card on screen would be cut if this widget had `rows` rows."""
        panes = [pane for pane, _ in self._visible()]
        if self.has_class("-stacked"):
            return sum(pane.content_rows() for pane in panes) <= rows
        frame = 2 if self.has_class("-framed") else 0
        return all(pane.content_rows() + frame <= rows for pane in panes)

    def window(self) -> range:
        """Return the places on screen."""
        count = len(self._cards)
        if self.zoomed:
            place = self._selected or 0
            return range(place, min(place + 1, count))
        if self.side_by_side:
            return range(min(count, SLOTS))
        if self.stack:
            return self._sliding(min(SLOTS, max(1, self.size.height // 2)))
        return self._sliding(min(self.columns, SLOTS))

    def _sliding(self, room: int) -> range:
        count = len(self._cards)
        if count <= room:
            return range(count)
        start = max(0, min((self._selected or 0) - room // 2, count - room))
        return range(start, start + room)

    def _visible(self) -> list[tuple[TextPane, int]]:
        return list(zip(self.query_children(TextPane), self.window(), strict=False))

    def jumps(self) -> list[tuple[TextPane, Callable[[], Any]]]:
        """Return the cards on screen, each with what selects it, as a click does."""
        return [
            (pane, partial(self.post_message, self.Chosen(place)))
            for pane, place in self._visible()
            if pane.display
        ]

    def _arrange(self) -> None:
        if not self.is_mounted:
            return
        if (
            not self.size.width
        ):  # hidden: the first frame after it is shown must not have old answers
            for pane in self.query_children(TextPane):
                pane.display = False
            return
        stacked = self.stack and not self.side_by_side and not self.zoomed
        self.set_class(stacked, "-stacked")
        roomy = self.screen.has_class("-roomy") and not stacked
        self.set_class(roomy and self.size.width // len(self.window() or "x") > FRAMED, "-framed")
        places = self.window()
        panes = self._panes(len(places))
        for pane in panes[len(places) :]:
            pane.display = False
        shown = list(zip(panes, places, strict=False))
        for pane, place in shown:
            self._fill(pane, place)
        if stacked:
            self._share(shown)
        else:
            for pane, _ in shown:
                pane.styles.height = "1fr"

    def _panes(self, count: int) -> list[TextPane]:
        """Return at least `count` panes, mounting those that are missing."""
        missing = count - len(self.query_children(TextPane))
        if missing > 0:
            self.mount_all([TextPane() for _ in range(missing)])
        return list(self.query_children(TextPane))

    def _fill(self, pane: TextPane, place: int) -> None:
        card = self._cards[place]
        chosen = place == self._selected
        pane.display = True
        pane.set_class(chosen, "-selected")
        if self.has_class("-framed"):
            pane.drop_head()
            pane.put_in_border(Content.assemble(*_in_border(head(card, HEAD, chosen))))
        else:
            pane.show_head((card, chosen), lambda width: head(card, width, chosen))
        pane.show(card, lambda width: body(card, width))

    def _share(self, shown: Sequence[tuple[TextPane, int]]) -> None:
        """Share the height of stacked cards by the length of their texts."""
        rows_needed = [1 + len(body(self._cards[place], self.size.width - 1)) for _, place in shown]
        focus = next((at for at, (_, place) in enumerate(shown) if place == self._selected), None)
        heights = share_heights(rows_needed, self.size.height, focus)
        for (pane, _), rows in zip(shown, heights, strict=True):
            pane.styles.height = rows

    def on_resize(self, event: events.Resize) -> None:
        """Arrange the cards for another size."""
        self.call_after_refresh(self._arrange)
        self._arrange()

    def on_click(self, event: events.Click) -> None:
        """Report a click on a card."""
        for pane, place in self._visible():
            if event.widget is pane:
                self.post_message(self.Chosen(place, twice=event.chain == 2))


class GroupDetail(Vertical):
    """Shows a group; it paints only what has changed."""

    DEFAULT_CSS = """
    GroupDetail { height: 1fr; }
    GroupDetail > #detail-head { max-height: 50%; padding: 0 1; margin: 0 0 1 0; }
    GroupDetail > #detail-tabs { height: 1; display: none; }
    GroupDetail > #detail-bars { display: none; padding: 0 1; margin: 0 0 1 0; max-height: 12; }
    """

    def __init__(
        self,
        selectable: bool = True,
        id: str | None = None,  # noqa: A002 - Textual's own name
        *,
        bars: bool = False,
    ) -> None:
        """Create a detail without a group.

        Args:
            selectable: Whether one of its candidates is selected.
            bars: Whether the parts of the rewards are also drawn as bars, if there is room.
        """
        super().__init__(id=id)
        self.selectable = selectable
        self.bars = bars
        self.options = DetailOptions()
        self.raw = False
        self.base: int | None = None
        """Index of the candidate that the others are compared with."""
        self._shown: str | None = None
        self._whole: dict[int, WholeAnswer] = {}

    def compose(self) -> ComposeResult:
        """Head, bars, tabs, candidates."""
        question = TextPane(id="detail-head")
        question.border_title = "REQUEST"
        yield question
        bars = TextPane(id="detail-bars")
        bars.border_title = "REWARD BY PART"
        yield bars
        yield TextPane(id="detail-tabs")
        yield Candidates()

    @property
    def candidates(self) -> Candidates:
        """The cards."""
        return self.query_one(Candidates)

    @property
    def selected(self) -> int:
        """Index of the selected candidate."""
        return self.candidates.selected or 0

    def whole(self, index: int) -> str:
        """Return the whole text of a candidate once it was fetched, else ""."""
        answer = self._whole.get(index)
        return (answer.text or answer.tool_calls) if answer is not None else ""

    def take_whole(self, query: str, texts: dict[int, WholeAnswer]) -> None:
        """Show these texts in place of the cut ones."""
        self.options = replace(self.options, query=query)
        self._whole = texts

    def show(self, group: Group, context: str = "") -> None:
        """Paint the group as it is now.

        Args:
            group: The group.
            context: Description of what precedes its query.
        """
        session = host(self).session
        now, state = session.now(), session.state
        place = self.candidates.selected or 0
        if group.group_id != self._shown:
            self._shown = group.group_id
            self._whole = {}
            self.options = DetailOptions()
            self.raw = False
            self.base = None
            place = 0
        self.options = replace(
            self.options,
            server_color=group_color(state, group),
            read_only=session.read_only,
            context=context,
            weights=state.weights_text(group),
            verdict=verdict_in(state, group),
        )
        options = self.options
        pane = self.query_one("#detail-head", TextPane)
        width = max(20, pane.scrollable_content_region.width or self.size.width - 2)
        lines = header_lines(group, now, width, options)
        pane.show((width, *lines), lambda room: header_lines(group, now, room, options))
        self._show_bars(group, width)
        shown = [
            replace(card, unfolded=options.unfolded, raw=self.raw)
            for card in cards(group, self._whole or None)
        ]
        if self.base is not None:
            shown = compared(shown, self.base)
        self.candidates.show_cards(shown, place if self.selectable else None)
        self._show_tabs()

    def _show_bars(self, group: Group, width: int) -> None:
        """Show the rewards by part as bars; a short or narrow terminal has no room for them."""
        if not self.bars:
            return
        pane = self.query_one("#detail-bars", TextPane)
        scored = self.screen.has_class("-roomy") and bool(bar_lines(group, width))
        pane.display = scored
        if scored:
            source = [
                (candidate.index, candidate.auto_reward, candidate.parts)
                for candidate in group.candidates
            ]
            pane.show((*source, group.rating, group.source), lambda room: bar_lines(group, room))

    def select(self, place: int) -> None:
        """Select a candidate."""
        self.candidates.select(place)
        self._show_tabs()

    def _show_tabs(self) -> None:
        candidates = self.candidates
        tabs = self.query_one("#detail-tabs", TextPane)
        tabs.display = len(candidates.window()) < len(candidates.cards)
        if tabs.display:
            tabs.show_lines([tabs_line(candidates.cards, candidates.selected, candidates.window())])

    def on_resize(self) -> None:
        """Show the candidates that fit another size."""
        self.call_after_refresh(self._show_tabs)

    def toggle_fold(self) -> None:
        """Unfold query, reasoning and traceback, or fold them again."""
        self.options = replace(self.options, unfolded=not self.options.unfolded)
