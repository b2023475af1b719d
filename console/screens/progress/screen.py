"""Progress screen: is the policy better than its baseline, by which part, on which prompts."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.events import DescendantFocus
from textual.widget import Widget

from console.models.progress.pair_ratings import ratings_key
from console.models.progress.parts import part_weights
from console.models.progress.prompts import PromptChange, prompt_changes
from console.models.progress.standing import progress_server, standing
from console.screens.base import ConsoleScreen
from console.screens.parts import bind_actions, merge_bindings
from console.screens.progress.actions import LOOK, LookActions
from console.screens.progress.pair import PairScreen, may_rate_pairs
from console.screens.progress.prompt import ProbePromptScreen
from console.session.app_state import Session
from console.text.sections import Room
from console.views.progress.look_chart import chart_section
from console.views.progress.tables import (
    no_parts,
    no_prompts,
    parts_head,
    parts_lines,
    prompt_columns,
    prompt_line,
    prompt_pair,
    prompts_head,
)
from console.views.progress.verdict import head_lines
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from console.widgets.section import Section
from core.state import Progress

_CHART = frozenset({"progress", "servers", "totals"})
_ALL = frozenset({"*", "progress", "servers", "totals", "clock", "link"})


class ProgressScreen(ConsoleScreen):
    """The looks at the probe set of one server."""

    area: ClassVar[str] = "Progress"
    help_text: ClassVar[str] = (
        "The probe set has held-out prompts that are never trained on. A look measures the policy "
        "on them at one step: several samples of every prompt, scored by the reward. The first "
        "look is the baseline. Each later look gives a verdict about its step against the "
        "baseline, on these prompts: better, worse, or not known yet with an estimate of the "
        "samples that are missing. Over all looks together a false verdict has a probability of "
        "at most 5 %. Each look is also compared with the best verified step before it: if it is "
        "below that step with certainty, the verdict says so. A look that was cut short or failed "
        "has no verdict; the last complete one stays.\n"
        "The chart shows the mean of each look with its interval, the baseline and its level; "
        "training reward and human win rate are other measures, on other prompts. Win rates have "
        "the axis at the right. Below: each part of the reward, answer length and repetition, "
        "before and now; then the prompts whose mean reward changed most. Enter shows their "
        "answers with a word diff; Tab goes to the parts.\n"
        "l takes a look now. t makes the present step the new baseline, w restores the best "
        "verified step; both ask first. p pauses training: users are answered and nothing is "
        "trained until r resumes it.\n"
        "b shows pairs of answers of before and now, for you to rate without knowing which is "
        "which; the ratings never train."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    footer_words: Mapping[str, str] = {"open": "Answers"}
    BINDINGS: ClassVar[list[BindingType]] = merge_bindings(
        LookActions.BINDINGS,
        [
            Binding(
                "b",
                "rate_pair",
                "Blind pair",
                id="progress.pair",
                tooltip="Compare an answer of before with one of now, blind",
            ),
            Binding("n", "next_server", "Next server", id="progress.next_server"),
        ],
    )

    def __init__(self) -> None:
        super().__init__()
        self._chosen_server = ""
        self.looks = LookActions(self)
        bind_actions(self, self.looks)

    def compose_body(self) -> Iterable[Widget]:
        """Verdict; chart and parts; prompts and the answers to the one under the cursor."""
        yield TextPane(id="progress-head")
        with Container(id="progress-body"):
            with Container(id="progress-left"):
                yield Section(self._chart, _CHART, id="progress-chart")
                parts = TextPane(id="progress-parts")
                parts.can_focus = True
                parts.border_title = "PARTS OF THE REWARD"
                yield parts
            with Container(id="progress-right"):
                prompts = ItemList(id="progress-prompts")
                prompts.border_title = "PROMPTS THAT CHANGED MOST"
                yield prompts
                pair = TextPane(id="progress-pair")
                pair.border_title = "BEFORE AND NOW"
                yield pair

    # --- what is shown -----------------------------------------------------------------------

    @property
    def target_server(self) -> str | None:
        """The server whose progress is shown."""
        state = self.session.state
        if self._chosen_server in (*state.servers, *state.progress):
            return self._chosen_server
        return progress_server(state) or None

    @property
    def _progress(self) -> Progress:
        return self.session.state.progress.get(self.target_server or "") or Progress()

    def _servers(self) -> list[str]:
        state = self.session.state
        return list(dict.fromkeys([*state.servers, *state.progress]))

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed; the clock moves only the bar of a running look."""
        if dirty.isdisjoint(_ALL):
            return
        session, progress = self.session, self._progress
        name = (self.target_server or "") if len(self._servers()) > 1 else ""
        present = standing(session.state, self.target_server or "")
        head = self.query_one("#progress-head", TextPane)
        since = session.as_of if progress.running is not None else 0.0
        best = progress.best, progress.rewinds
        head.show(
            (present, name, progress.probe_set, best, ratings_key(progress), since),
            lambda width: head_lines(present, progress, name, session, width),
        )
        if dirty.isdisjoint(_ALL - {"clock", "link"}):
            return
        self.query_one("#progress-chart", Section).paint(session, dirty)
        look = progress.current
        parts = self.query_one("#progress-parts", TextPane)
        parts.show_head(look is not None, parts_head if look is not None else no_parts)
        weights = part_weights(session.state, look) if look is not None else {}
        rows = (look.parts, look.left_out, weights) if look is not None else ()
        parts.show(
            rows, lambda width: parts_lines(look, width, weights) if look is not None else []
        )
        changes = prompt_changes(progress)
        prompts = self.query_one(ItemList)
        columns = prompt_columns(changes)
        prompts.show_head(
            (bool(changes), columns),
            lambda width: prompts_head(width, columns) if changes else no_prompts(width),
        )
        prompts.show_items(
            tuple(changes),
            lambda width: [
                ListItem(change.id, (prompt_line(change, width, columns),)) for change in changes
            ],
        )
        self._paint_pair(changes)
        self.refresh_bindings()

    def _paint_pair(self, changes: list[PromptChange]) -> None:
        pane, progress = self.query_one("#progress-pair", TextPane), self._progress
        key = self.query_one(ItemList).cursor
        one = next((each for each in changes if each.id == key), None)
        if one is None:
            pane.show_lines([(("The answers to the prompt under the cursor", "$muted"),)])
            return
        pane.show(
            (one, progress.current and progress.current.look_id),
            lambda width: prompt_pair(one, progress, width),
        )

    def _chart(self, session: Session, room: Room) -> Content:
        server = session.state.servers.get(self.target_server or "")
        return chart_section(self._progress, server, room, self.looks.offer(LOOK) is not None)

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show the answers to another prompt."""
        event.stop()
        self._paint_pair(prompt_changes(self._progress))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Mark the parts while they can be scrolled."""
        parts = self.query_one("#progress-parts", TextPane)
        parts.set_class(event.widget is parts, "-selected")
        parts.repaint()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        if action == "send":
            return self.looks.offer(str(parameters[0])) is not None
        if action == "rate_pair":
            return may_rate_pairs(self.host, self.target_server or "")
        if action == "next_server":
            return len(self._servers()) > 1
        return super().check_action(action, parameters)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Show the answers to a prompt on a screen of their own."""
        event.stop()
        self.host.push_screen(ProbePromptScreen(self.target_server or "", event.key))

    def action_rate_pair(self) -> None:
        """Compare answers of before and now."""
        self.host.push_screen(PairScreen(self.target_server or ""))

    def action_next_server(self) -> None:
        """Show the progress of another server."""
        names = self._servers()
        self._chosen_server = names[(names.index(self.target_server or "") + 1) % len(names)]
        self.update_view(frozenset({"*"}))
