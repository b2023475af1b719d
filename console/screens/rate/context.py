"""State shared by the parts of the rating screen: queue, group on screen, ballot."""

from ajet_swarm.common.text import plain
from console.models.app_host import AppHost
from console.models.ballot import Ballot
from console.models.guidelines import Guidelines
from console.models.rate_queue import RateQueue, digit
from console.screens.base import ConsoleScreen
from console.screens.group_actions import GroupTarget
from console.session.app_state import EVERYTHING, Session
from console.widgets.candidates import Candidates
from core.state import Group


class RatingContext:
    """The state of one rating screen.

    Attributes:
        screen: The rating screen.
        queue: Groups that wait for a vote, and the votes already sent.
        guidelines: The guidelines as last read; None without any.
    """

    def __init__(self, screen: ConsoleScreen) -> None:
        self.screen = screen
        self.queue = RateQueue()
        self.queue.holder = screen.session.holder
        self.guidelines: Guidelines | None = None

    @property
    def session(self) -> Session:
        """The session of the screen."""
        return self.screen.session

    @property
    def host(self) -> AppHost:
        """The app of the screen."""
        return self.screen.host

    @property
    def group(self) -> Group | None:
        """The group on screen."""
        current = self.queue.current
        return self.session.group(current) if current is not None else None

    @property
    def ballot(self) -> Ballot | None:
        """The unsent rating of the group on screen."""
        return self.queue.ballot

    @property
    def answers(self) -> Candidates:
        """The widget with the answers."""
        return self.screen.query_one(Candidates)

    def take_settings(self) -> None:
        """Apply the settings about rating to the queue."""
        rating = self.session.rating
        self.queue.rater = self.session.rater
        self.queue.share = 0.0 if self.session.read_only else rating.repeats
        self.queue.bounds = (rating.score_low, rating.score_high)

    def waiting(self) -> list[Group]:
        """Return the groups that wait for a vote: waiting users first, then the shortest clock."""
        self.queue.rater = self.session.rater  # it can change on any screen
        return self.queue.waiting(self.session.state, self.session.now())

    def held_votes(self) -> list[Group]:
        """Return the groups whose vote from here can still be undone, newest vote first."""
        self.queue.rater = self.session.rater
        return self.queue.held(self.session.state, self.session.now())

    def last_voted(self) -> Group | None:
        """Return the group of the newest vote; `U` lists older ones."""
        last = self.queue.last
        return self.session.state.groups.get(last.group_id) if last is not None else None

    def repaint(self) -> None:
        """Paint the whole screen."""
        self.screen.update_view(EVERYTHING)

    def reset_answers(self) -> None:
        """Reset zoom, scrolling and selection for another group."""
        self.answers.zoomed = False
        self.answers.scroll_to_top()
        self.answers.select(None)

    # --- messages ----------------------------------------------------------------------------

    def show_success(self, message: str) -> None:
        """Show an outcome in the last line; a toast would cover the ballot."""
        self.queue.set_message(plain(message))
        self.repaint()

    def hint(self, message: str) -> None:
        """Show a message about the group on screen, until that changes or the next vote."""
        self.queue.set_message(plain(message), hint=True)
        self.repaint()

    def explain(self, key: str, why: str) -> None:
        """Show why a key does nothing now; in the last line while no group waits."""
        if self.group is not None:
            self.host.say(why, "warning")
        elif self.screen.takes_digits or key not in {
            str(spec.digit)
            for spec in self.host.shown_screens
            if spec.digit not in self.screen.own_digits
        }:
            self.hint(why)


class RatedGroup(GroupTarget):
    """The group on the rating screen, whose answers may be shuffled and anonymous."""

    def __init__(self, context: RatingContext) -> None:
        super().__init__(context.screen)
        self._context = context

    @property
    def candidate(self) -> int:
        cards = self._context.answers
        card = cards.cards[cards.selected or 0] if cards.cards else None
        return card.index if card is not None else 0

    def number_of(self, index: int) -> str:
        """Return the digit of the answer on this screen, not the number of the candidate."""
        ballot = self._context.ballot
        return digit(index, ballot.shown) if ballot is not None else super().number_of(index)

    def abort_details(self, group: Group) -> str:
        """Return what the user received; omit the answer's number while the vote is blind."""
        ballot = self._context.ballot
        if group.returned is None or ballot is None:
            return super().abort_details(group)
        if ballot.blind and not ballot.revealed:
            return "The user has been answered."
        return f"The user has been answered, with answer {self.number_of(group.returned)}."
