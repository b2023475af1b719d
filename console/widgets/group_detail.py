"""Detail of one group: head, bars and candidates."""

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Vertical

from console.models.group_text import WholeAnswer
from console.session.group_facts import verdict_in
from console.text.server_color import group_color
from console.views.candidate import cards, compared
from console.views.group_detail import DetailOptions, header_lines, tabs_line
from console.views.rewards.bars import bar_lines
from console.widgets.candidates import Candidates
from console.widgets.pane import TextPane
from console.widgets.section import host
from core.state import Group


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
