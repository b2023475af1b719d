"""A group on screen: its head, and its candidates as the size allows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message

from console.models.app_host import host
from console.screens.group.card import Card, body, cards, compared, head, in_border
from console.screens.group.model import WholeAnswer
from console.screens.group.text import DetailOptions, header_lines, tabs_line
from console.session.group_facts import verdict_in
from console.text.format import group_color
from console.views.rewards.bars import bar_lines
from console.widgets.pane import TextPane
from core.state import Group

COLUMN = 34
"""Minimum cells of a card beside others."""
FRAMED = 37
"""Cells from which a card beside others has a border."""
HEAD = 60
"""Cells for which the head of a card in the border is built."""
SLOTS = 16
"""Most cards on screen; the selection scrolls through more."""


class Candidates(Container):
    """Shows the cards of one group: as many as fit side by side, around the selected one."""

    DEFAULT_CSS = """
    Candidates { height: 1fr; layout: horizontal; }
    Candidates > TextPane { width: 1fr; height: 1fr; margin: 0 1 0 0; }
    Candidates > TextPane.-framed {
        border: round $faint; border-title-color: $foreground;
    }
    Candidates > TextPane.-framed:last-child { margin: 0; }
    Candidates > TextPane.-framed.-selected { border: round $accent; }
    """
    pane_type: ClassVar[type[TextPane]] = TextPane

    class Chosen(Message):
        """A card was clicked."""

        def __init__(self, place: int, *, twice: bool = False) -> None:
            super().__init__()
            self.place = place
            self.twice = twice
            """It is the second click on the card, within half a second."""

    def __init__(self) -> None:
        super().__init__()
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

    def scroll_selected(self, rows: int) -> None:
        """Scroll the selected card, or the first one."""
        for pane, place in self.shown_cards():
            if place == (self._selected or 0):
                pane.scroll_relative(y=rows, animate=False, immediate=True)

    @property
    def side_by_side(self) -> bool:
        """Whether all cards are on screen."""
        return len(self.window()) == min(len(self._cards), SLOTS)

    def window(self) -> Sequence[int]:
        """Return the place of the card in each pane on screen."""
        count, room = len(self._cards), min(SLOTS, max(1, self.size.width // COLUMN))
        start = max(0, min((self._selected or 0) - room // 2, count - room))
        return range(start, min(count, start + room))

    def shown_cards(self) -> list[tuple[TextPane, int]]:
        """Return the panes on screen, each with the place of its card."""
        return list(zip(self.query_children(TextPane), self.window(), strict=False))

    def jumps(self) -> list[tuple[TextPane, Callable[[], Any]]]:
        """Return the cards on screen, each with what selects it, as a click does."""
        return [
            (pane, partial(self.post_message, self.Chosen(place)))
            for pane, place in self.shown_cards()
            if pane.display
        ]

    def _arrange(self) -> None:
        if not self.is_mounted:
            return
        # hidden: the first frame after it is shown must not have old answers
        places = self.window() if self.size.width else ()
        panes = self._panes(len(places))
        for pane in panes[len(places) :]:
            pane.display = False
        for at, (pane, _) in enumerate(zip(panes, places, strict=False)):
            pane.display = True
            self.fill(pane, at)

    def _panes(self, count: int) -> list[TextPane]:
        """Return at least `count` panes, mounting those that are missing."""
        missing = count - len(self.query_children(TextPane))
        if missing > 0:
            self.mount_all([self.pane_type() for _ in range(missing)])
        return list(self.query_children(TextPane))

    def fill(self, pane: TextPane, at: int) -> None:
        """Show a card in the pane at position `at` of those on screen."""
        place = self.window()[at]
        card, chosen = self._cards[place], place == self._selected
        pane.set_class(chosen, "-selected")
        roomy = self.screen.has_class("-roomy")
        pane.set_class(roomy and self.size.width // len(self.window()) > FRAMED, "-framed")
        if pane.has_class("-framed"):
            pane.drop_head()
            pane.put_in_border(Content.assemble(*in_border(head(card, HEAD, chosen))))
        else:
            pane.show_head((card, chosen), lambda width: head(card, width, chosen))
        pane.show(card, lambda width: body(card, width))

    def on_resize(self, event: events.Resize) -> None:
        """Arrange the cards for another size."""
        self.call_after_refresh(self._arrange)
        self._arrange()

    def on_click(self, event: events.Click) -> None:
        """Report a click on a card."""
        for pane, place in self.shown_cards():
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
