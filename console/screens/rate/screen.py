"""Rating by hand: one group at a time, blind, by digits."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult

from console.screens.base import ConsoleScreen
from console.screens.group.widgets import Candidates
from console.screens.rate import text
from console.screens.rate.ballot import DIGITS, Ballot
from console.screens.rate.inbox.keys import InboxKeys
from console.screens.rate.inbox.model import InboxGroups
from console.screens.rate.lease import LeaseKeeper
from console.screens.rate.model import RateQueue
from console.screens.rate.tools import AnswerKeys, RaterTools
from console.screens.rate.voting import RatedGroup, RateGroupKeys, Voting
from console.screens.rate.widgets import Answers, RateAside
from console.session.app_state import EVERYTHING
from console.text.lines import EMPTY, Line, line_width
from console.text.wrap import wrapped
from console.widgets.key_area import KeyArea
from console.widgets.pane import TextPane, centred
from core.state import Group

_PAINTED_FOR = frozenset({"*", "groups", "clock", "proxy", "link", "alerts", "servers"})


class RateScreen(ConsoleScreen):
    """The queue of groups that wait for the operator: waiting users first, then by clock."""

    area: ClassVar[str] = "Rate"
    help_text: ClassVar[str] = (
        "A digit votes: that answer is best, and the next group is there; a double click is its "
        "digit. > opens a ranking, best first, s a score from 0 to 9 for each; t tie and b all bad "
        "make a dead group: Enter sends these, Esc closes them. With rating.confirm: enter a digit "
        "waits for Enter, all digits in order are a ranking, and t and b are pressed twice. k puts "
        "the group to the end of the queue, its clock goes on; x aborts it, asks first and takes a "
        "reason. "
        "Answers are shuffled and rewards hidden; v shows them, with the number each answer has in "
        "the group's detail as #1 #2. u undoes the last vote until it is sent. e edits the best "
        "answer, also of the last vote; after a tie or all bad it asks for the one that should "
        "have been given: a demonstration for SFT; rewards and the user's answer stay. Some groups "
        "come back reshuffled: that vote is compared with the first and not sent; j shows how "
        "often they agree. Space reads on: answers beside each other move together, the selected "
        "one (Tab) alone; of several under each other one at a time. Lines that all answers share "
        "are dim. I lists the groups that ended before their vote, U your votes and what each did. "
        "A there, or while no group waits, asks a prompt again. G sets a goal for the session. "
        "The reasons of w have a key each, a capital, for a vote that is typed or held."
    )
    AUTO_FOCUS = "Voting"
    keeps_focus: ClassVar[bool] = True
    digits_vote: ClassVar[bool] = True
    first_keys: tuple[str, ...] = ("refill",)
    spare_keys: ClassVar[tuple[str, ...]] = (
        *("abort", "arm('tie')", "arm('bad')", "mode", "take", "open('ranking')"),
        *("edit", "note", "diff", "guidelines", "zoom", "step(1)", "tags", "page(1)"),
        *("held", "goal", "judge", "unsure", "inbox"),
    )
    most_keys: ClassVar[int] = 20

    def __init__(self, late: InboxGroups | None = None) -> None:
        """`late` has the groups of the inbox for late votes; None shows the open groups."""
        super().__init__()
        self.queue = RateQueue(self.session, late)
        self.target = RatedGroup(self, self.queue)
        self.abort_details = self.target.abort_details
        self.group_keys = RateGroupKeys(self.target, self.queue)
        self.voting = Voting(self.queue, focusable=True)
        self.lease = LeaseKeeper(self, self.queue)
        self._painted_group: str | None = None

    def compose_body(self) -> ComposeResult:
        tools = RaterTools(self.queue, self.lease)
        answer_keys = AnswerKeys(self.queue, self.target)
        with self.group_keys, tools, InboxKeys(self.queue), answer_keys, self.voting:
            yield TextPane(id="rate-head")
            yield TextPane(id="rate-prompt")
            yield Answers()
            yield TextPane(id="rate-empty")
            yield RateAside()
            yield TextPane(id="rate-ballot")
            yield TextPane(id="rate-last")

    @property
    def target_group(self) -> str | None:
        return self.queue.current

    # --- messages ----------------------------------------------------------------------------

    @on(KeyArea.Changed)
    def show_change(self) -> None:
        """Paint what a key has changed."""
        if self.is_current:
            self.update_view(EVERYTHING)

    @on(Candidates.Chosen)
    def choose(self, event: Candidates.Chosen) -> None:
        """Select the answer that was clicked; a double click ranks it next, like its digit."""
        self.query_one(Answers).select(event.place)
        ballot = self.queue.ballot
        if event.twice and ballot is not None and not ballot.scoring:
            self.voting.action_digit(event.place + 1)

    def on_screen_suspend(self) -> None:
        """Release the group while another screen is in front."""
        self.lease.release_if_covered()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint(_PAINTED_FOR):
            return
        self.queue.advance()
        if self._painted_group != self.queue.current:
            self._painted_group = self.queue.current
            self.query_one(Answers).reset()
        painted, ballot = self.queue.painted, self.queue.ballot
        if painted.ballot is not ballot:
            self.call_after_refresh(painted.record, ballot)
        self.lease.update()
        self._name_digits(ballot)
        for area in self.query(KeyArea):
            area.keys.refresh()
        self._paint()
        self.query_one(InboxKeys).paint()

    def _name_digits(self, ballot: Ballot | None) -> None:
        """Name the digits of the answers in the footer, `1-4`; a score may be any digit."""
        many = min(len(ballot.shown), DIGITS) if ballot and not ballot.scoring else DIGITS
        named = {"digit(1)": f"1-{many}" if many > 1 else "1"}
        if named != self.footer_keys:
            self.footer_keys = named
            self.refresh_bindings()

    def _pane(self, name: str) -> TextPane:
        return self.query_one(f"#rate-{name}", TextPane)

    def _paint(self) -> None:
        queue, group, width = self.queue, self.queue.group, max(20, self.size.width)
        # a group with a second vote has no clock: show that of the next group
        clocked = next(iter(queue.waiting()), None) if queue.second else group
        self._pane("head").show_lines([text.header_line(queue, clocked, width)])
        self.set_class(group is None, "-empty")
        if group is not None:
            self._paint_group(group)
        else:
            lines, votes = (
                tuple(text.empty_lines(queue)),
                [line for _, line in text.vote_rows(queue)],
            )
            shown = [] if queue.late is not None else votes
            self._pane("empty").show((lines, *shown), lambda room: _centred(lines, shown, room))
        self._pane("last").show_lines([text.last_line(queue, width)])
        answers = self.query_one(Answers) if group is not None else None
        self.query_one(RateAside).paint(queue, answers, self.has_class("-roomy"))

    def _paint_group(self, group: Group) -> None:
        ballot = self.queue.ballot
        prompt = (group.query, self.group_keys.context())
        self._pane("prompt").show(
            prompt, lambda room: text.prompt_lines(prompt[0], room, prompt[1])
        )
        if ballot is None:
            return
        answers = self.query_one(Answers)
        cards = text.rate_cards(group, ballot, compact=not answers.zoomed)
        answers.show_cards(cards, answers.selected)
        words, tone = text.ballot_text(group, ballot, self.session.read_only)
        self._pane("ballot").show(
            (words, tone), lambda room: [((f" {row}", tone),) for row in wrapped(words, room - 2)]
        )


def _centred(lines: tuple[str, ...], votes: list[Line], width: int) -> list[Line]:
    title, *rest = lines
    left = max(0, width - max((line_width(row) for row in votes), default=0)) // 2
    return [
        EMPTY,
        centred(title, width, "bold"),
        *(centred(row, width, "$muted") for row in rest),
        *([EMPTY, centred("Your last votes, U lists them:", width, "bold")] if votes else ()),
        *(((" " * left, ""), *row) for row in votes),
    ]
