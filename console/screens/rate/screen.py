"""Rating by hand: one group at a time, blind, by digits."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from console.screens.base import ConsoleScreen
from console.screens.conversation import ConversationActions
from console.screens.group_actions import WRITING, GroupActions, digit_bindings
from console.screens.parts import ActionKeys, bind_actions, merge_bindings
from console.screens.rate.context import RatedGroup, RatingContext
from console.screens.rate.lease import LeaseKeeper
from console.screens.rate.page import RatingPage
from console.screens.rate.tools import WRITING_TOOLS, RatingTools
from console.screens.rate.votes import VoteController
from console.widgets.candidates import Candidates
from console.widgets.pane import TextPane
from console.widgets.rate_aside import RateAside
from core.state import Group

_KEYS: list[BindingType] = [
    Binding("a", "accept", "Accept", show=False, id="group.accept"),
    Binding(
        "x",
        "abort",
        "Abort",
        show=False,
        id="group.abort",
        tooltip="Give its episodes back; asks first",
    ),
    *digit_bindings("digit", "Best", "Best first; then the next ones for a ranking"),
    Binding("0", "digit(0)", "Score 0", show=False),
    Binding("enter", "commit", "Send", id="rate.commit", tooltip="Send the typed vote"),
    Binding("s", "scores", "Score", id="rate.scores", tooltip="A digit for each answer"),
    Binding("t", "tie", "Tie", show=False, id="rate.tie", tooltip="No preference: a dead group"),
    Binding("b", "bad", "Bad", show=False, id="rate.bad", tooltip="All 0: a dead group"),
    Binding("k", "skip", "Skip", id="rate.skip", tooltip="Send nothing: the group is aborted"),
    Binding("u", "undo", "Undo", id="rate.undo", tooltip="Undo the last vote"),
    Binding("v", "reveal", "Show", id="rate.reveal", tooltip="Rewards, marks and numbers"),
    Binding("o", "mode", "Mode", show=False, id="rating.mode", tooltip="off, answer first, hold"),
    Binding("backspace", "back", "Delete the last key", show=False),
    Binding("tab,right", "step(1)", "Select", show=False, tooltip="The next answer"),
    Binding("shift+tab,left", "step(-1)", "Previous answer", show=False),
    Binding("down,space", "scroll_card(3)", "Down", show=False),
    Binding("up", "scroll_card(-3)", "Up", show=False),
    Binding("z", "zoom", "Zoom", show=False, id="rate.zoom"),
    Binding("right_square_bracket", "other(1)", "Next group", show=False, key_display="]"),
    Binding("left_square_bracket", "other(-1)", "Previous group", show=False, key_display="["),
    Binding("escape", "clear", "Clear", show=False, id="rate.clear"),
    Binding(
        "N",
        "name",
        "Your name",
        show=False,
        id="rate.name",
        tooltip="The rater's name, recorded with all later votes",
    ),
]


class RateScreen(ConsoleScreen):
    """The queue of groups that wait for the operator: waiting users first, then by clock."""

    area: ClassVar[str] = "Rate"
    help_text: ClassVar[str] = (
        "One digit and Enter: that answer is best; a double click is its digit. Digits in order: "
        "a ranking; the last one sends it. s: a score from 0 to 9 for each. t tie and b all bad "
        "make a dead group, k skip aborts it: press twice. x asks first and takes a reason. "
        "Answers are shuffled and rewards hidden; v shows them, with the number each answer has in "
        "the group's detail as #1 #2. u undoes the last vote until it is sent. e edits the best "
        "answer: stored as a preference; rewards and the user's answer stay. Some groups come back "
        "reshuffled: that vote is compared with the first and not sent; j shows how often they "
        "agree."
    )
    digits_vote: ClassVar[bool] = True
    own_digits: ClassVar[frozenset[int]] = frozenset({0})  # the score of a bad answer
    spare_keys: ClassVar[tuple[str, ...]] = (
        "abort",
        "tie",
        "bad",
        "mode",
        "take",
        "edit",
        "note",
        "diff",
        "guidelines",
        "zoom",
        "step(1)",
        "tags",
        "held",
        "judge",
        "unsure",
    )
    most_keys: ClassVar[int] = 20
    BINDINGS: ClassVar[list[BindingType]] = merge_bindings(
        GroupActions.BINDINGS, ConversationActions.BINDINGS, RatingTools.BINDINGS, _KEYS
    )

    def __init__(self) -> None:
        super().__init__()
        self.context = RatingContext(self)
        self.target = RatedGroup(self.context)
        self.group_actions = GroupActions(self, self.target, self.context.show_success)
        self.conversation = ConversationActions(self, self.target)
        self.votes = VoteController(self.context, self.group_actions)
        self.lease = LeaseKeeper(self.context)
        self.tools = RatingTools(self.context, self.votes, self.group_actions)
        self.page = RatingPage(self.context, self.conversation)
        self.keys = ActionKeys(
            self,
            WRITING | WRITING_TOOLS,
            self._obstacle,
            lambda: self.context.group is not None,
            self.context.explain,
        )
        bind_actions(
            self,
            self.group_actions,
            self.conversation,
            self.votes,
            self.lease,
            self.tools,
            self.page,
        )

    def compose_body(self) -> ComposeResult:
        yield TextPane(id="rate-title")
        yield TextPane(id="rate-banner")
        yield TextPane(id="rate-clock")
        yield TextPane(id="rate-prompt")
        yield Candidates(stack=True)
        yield TextPane(id="rate-empty")
        yield RateAside()
        yield TextPane(id="rate-ballot")
        yield TextPane(id="rate-last")

    def on_mount(self) -> None:
        """Apply the settings and read the guidelines."""
        self.context.take_settings()
        self.tools.load_guidelines()

    @property
    def target_group(self) -> str | None:
        return self.context.queue.current

    @property
    def takes_digits(self) -> bool:
        return self.votes.takes_digits()

    def abort_details(self, group: Group) -> str:
        """Return the sentence about the user for the abort dialog."""
        return self.target.abort_details(group)

    def _obstacle(self, action: str) -> str | None:
        """Return why an action is unavailable now; None when it is available."""
        return self.lease.obstacle() if action == "take" else self.tools.obstacle(action)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        return self.keys.allows(action)

    def on_key(self, event: events.Key) -> None:
        """Explain a key that has no effect now."""
        self.keys.explain(event)

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint({"*", "groups", "clock", "proxy", "link", "alerts", "servers"}):
            return
        context, now = self.context, self.session.now()
        waiting = context.waiting()
        if context.queue.update(waiting, self.session.state, now):
            context.reset_answers()
        self.lease.update(now)
        self.keys.refresh()
        self.page.paint(waiting, now)

    def on_candidates_chosen(self, event: Candidates.Chosen) -> None:
        """Select the answer that was clicked; a double click ranks it next, like its digit."""
        self.context.answers.select(event.place)
        ballot = self.context.ballot
        if event.twice and ballot is not None and not ballot.scoring:
            self.votes.action_digit(event.place + 1)

    def on_screen_suspend(self) -> None:
        """Release the group while another screen is in front."""
        self.lease.release_if_covered()
