"""Progress screen: is the policy better than its baseline, by which part, on which prompts."""

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.events import DescendantFocus
from textual.widget import Widget

from ajet_swarm.common.text import one_line
from console.models.available_commands import offered
from console.screens.base import ConsoleScreen
from console.screens.progress import model, text
from console.screens.progress.chart import look_lines
from console.screens.progress.pair import PairScreen
from console.screens.run_command import run_available
from console.session.app_state import EVERYTHING, Session
from console.session.command_plans import may_send
from console.text.lines import Line
from console.text.sections import Room, lines
from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane
from console.widgets.scrolled_pane import ScrolledPane
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
        "answers with a word diff; Tab goes to the parts."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("l", "send('progress.look')", "Look now", "progress.look", "Measure the present policy"),
        ("t", "send('progress.trust')", "Trust step", "progress.trust", "As the new baseline"),
        ("w", "send('progress.rewind')", "Rewind", "progress.rewind", "To the best verified step"),
        ("p", "send('progress.pause')", "Pause", "progress.pause", "Answer without training"),
        ("r", "send('progress.resume')", "Resume", "progress.resume", "Train on requests again"),
        ("b", "rate_pair", "Blind pair", "progress.pair", "Rate earlier and current answers"),
        ("n", "next_server", "Next server", "progress.next_server"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._chosen_server = ""

    def compose_body(self) -> Iterable[Widget]:
        """Verdict; chart and parts; prompts and the answers to the one under the cursor."""
        yield TextPane(id="progress-head")
        parts, pair = TextPane(id="progress-parts"), TextPane(id="progress-pair")
        prompts = ItemList(id="progress-prompts", opens=("Answers", "Before and now"))
        parts.can_focus = True
        parts.border_title = "PARTS OF THE REWARD"
        prompts.border_title = "PROMPTS THAT CHANGED MOST"
        pair.border_title = "BEFORE AND NOW"
        with Container(id="progress-body"):
            with Container(id="progress-left"):
                yield Section(self._chart, _CHART, id="progress-chart")
                yield parts
            with Container(id="progress-right"):
                yield prompts
                yield pair

    @property
    def target_server(self) -> str | None:
        """The server whose progress is shown."""
        state = self.session.state
        if self._chosen_server in model.measured_servers(state):
            return self._chosen_server
        return model.progress_server(state) or None

    @property
    def _progress(self) -> Progress:
        return self.session.state.progress.get(self.target_server or "") or Progress()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed; the clock moves only the bar of a running look."""
        if dirty.isdisjoint(_ALL):
            return
        session, progress, state = self.session, self._progress, self.session.state
        name = (self.target_server or "") if len(model.measured_servers(state)) > 1 else ""
        present = model.standing(state, self.target_server or "")
        since = session.as_of if progress.running is not None else 0.0
        best = progress.best, progress.rewinds
        self.query_one("#progress-head", TextPane).show(
            (present, name, progress.probe_set, best, model.ratings_key(progress), since),
            lambda width: text.head_lines(present, progress, name, session, width),
        )
        if dirty.isdisjoint(_ALL - {"clock", "link"}):
            return
        self.query_one("#progress-chart", Section).paint(session, dirty)
        look = progress.current
        parts = self.query_one("#progress-parts", TextPane)
        if look is None:
            parts.show_head(False, partial(text.first_look, "Parts before and now"))
            parts.show_lines([])
        else:
            weights = model.part_weights(state, look)
            parts.show_head(True, text.PART_TABLE.head)
            parts.show(
                (look.parts, look.left_out, tuple(weights.items())),
                lambda width: text.parts_lines(look, width, weights),
            )
        changes, prompts = model.prompt_changes(progress), self.query_one(ItemList)
        without = text.prompt_columns(changes)
        prompts.show_table(text.PROMPTS, changes, lambda change: change.id, without)
        if not changes:
            prompts.show_head(None, partial(text.first_look, "Prompts that changed most"))
        self._paint_pair(changes)
        self.refresh_bindings()

    def _paint_pair(self, changes: list[model.PromptChange]) -> None:
        pane, progress = self.query_one("#progress-pair", TextPane), self._progress
        key = self.query_one(ItemList).cursor
        chosen = next((change for change in changes if change.id == key), None)
        if chosen is None:
            pane.show_lines([(("The answers to the prompt under the cursor", "$muted"),)])
        else:
            source = (chosen, progress.current and progress.current.look_id)
            pane.show(source, lambda width: text.prompt_pair(chosen, progress, width))

    def _chart(self, session: Session, room: Room) -> Content:
        server = session.state.servers.get(self.target_server or "")
        may_look = self._may_send("progress.look")
        return lines(*look_lines(self._progress, server, room.width, room.height, may_look))

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show the answers to another prompt."""
        event.stop()
        self._paint_pair(model.prompt_changes(self._progress))

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Mark the parts while they can be scrolled."""
        parts = self.query_one("#progress-parts", TextPane)
        parts.set_class(event.widget is parts, "-selected")
        parts.repaint()

    # --- keys --------------------------------------------------------------------------------

    def _may_send(self, command: str) -> bool:
        server = self.target_server
        return server is not None and offered(self.session, command, server) is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        if action == "send":
            return self._may_send(str(parameters[0]))
        if action == "rate_pair":
            return may_send(self.session, "progress.pair", server=self.target_server or "")
        if action == "next_server":
            return len(model.measured_servers(self.session.state)) > 1
        return super().check_action(action, parameters)

    def action_send(self, command: str) -> None:
        """Send a command; one that loses something or ends a comparison asks first."""
        if (offer := offered(self.session, command, self.target_server)) is not None:
            run_available(self.host, offer)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Show the answers to a prompt on a screen of their own."""
        event.stop()
        self.host.push_screen(ProbePromptScreen(self.target_server or "", event.key))

    def action_rate_pair(self) -> None:
        """Compare earlier and current answers."""
        self.host.push_screen(PairScreen(self.target_server or ""))

    def action_next_server(self) -> None:
        """Show the progress of another server."""
        names = model.measured_servers(self.session.state)
        self._chosen_server = names[(names.index(self.target_server or "") + 1) % len(names)]
        self.update_view(EVERYTHING)


class ProbePromptScreen(ConsoleScreen):
    """Prompt, reference and both answers side by side."""

    area: ClassVar[str] = "Probe prompt"
    help_text: ClassVar[str] = (
        "The answer in the baseline and the answer in the newest look: the one of greatest "
        "probability where the server offers it, else the first sample. In the current answer, "
        "shared words are dim, its own are underlined, missing ones are struck through. The first "
        "600 characters are kept; the file of the look has all samples. [ and ] show the prompts "
        "that changed more and less."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ScrolledPane"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("left_square_bracket", "other(-1)", "Changed more", "probe.more", "", "["),
        ("right_square_bracket", "other(1)", "Changed less", "probe.less", "", "]"),
        ("escape", "dismiss", "Back", "probe.leave"),
    )

    def __init__(self, server: str, prompt: str) -> None:
        super().__init__()
        self._server = server
        self._prompt = prompt

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="probe-title")
        yield ScrolledPane(id="probe-pair")

    @property
    def target_server(self) -> str | None:
        return self._server

    @property
    def _changes(self) -> dict[str, model.PromptChange]:
        """The prompts of the newest look, those that changed most first."""
        progress = self.session.state.progress.get(self._server) or Progress()
        return {change.id: change for change in model.prompt_changes(progress)}

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint({"*", "progress"}):
            return
        changes, progress = self._changes, self.session.state.progress.get(self._server)
        title: Line = ((" PROBE PROMPT  ", "bold $heading"), (one_line(self._prompt, 60), "bold"))
        pane = self.query_one("#probe-pair", TextPane)
        if progress is None or self._prompt not in changes:
            gone = "It is not in the newest look: a new comparison began"
            pane.show_lines([((f" {gone}", "$muted"),)])
        else:
            place = [*changes].index(self._prompt) + 1
            title = (*title, (f"  {place} of {len(changes)}", "$muted"))
            change, look = changes[self._prompt], progress.current
            source = (change, look and look.look_id)
            pane.show(source, lambda width: text.prompt_pair(change, progress, width))
        self.query_one("#probe-title", TextPane).show_lines([title])
        self.refresh_bindings()

    def _other(self, by: int) -> str | None:
        """Return a prompt that changed more or less; None if there is none."""
        names = [*self._changes]
        place = names.index(self._prompt) + by if self._prompt in names else -1
        return names[place] if 0 <= place < len(names) else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the other prompts where there are some."""
        return action != "other" or self._other(int(str(parameters[0]))) is not None

    def action_other(self, by: int) -> None:
        """Show a prompt that changed more or less."""
        if (other := self._other(by)) is not None:
            self._prompt = other
            self.query_one("#probe-pair", TextPane).scroll_to(y=0, animate=False)
            self.update_view(EVERYTHING)
