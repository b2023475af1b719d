"""Who sits at the rating screen: the queue, the rater's name, the leases."""

import secrets

from textual import work

from console.models.ballot import Ballot
from console.models.guidelines import Guidelines
from console.models.rate_queue import RateQueue
from console.screens.conversation import ConversationVerbs
from console.screens.rater import ask_name
from console.session.app_state import EVERYTHING
from console.widgets.candidates import Candidates
from core.state import Group

LEASE = 20.0
"""Seconds for which other consoles leave the group on screen alone; renewed while it is there."""
RENEW = 8.0
"""Seconds left from which it is renewed."""
AGAIN = 3.0
"""Seconds between two asks for a lease."""
IDLE = 60.0
"""Seconds without a key after which the group on screen is left to other consoles."""


class RateDesk(ConversationVerbs):
    """A queue of groups that is shared with other consoles."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = RateQueue()
        self.queue.holder = secrets.token_hex(4)
        self.guided = ""
        """Version of the guidelines; empty for none."""
        self.guide: Guidelines | None = None
        """The guidelines as they were read last."""
        self._leased: str | None = None
        self._lease_asked = float("-inf")

    def take_settings(self) -> None:
        """What the settings say about rating."""
        rating = self.session.rating
        self.queue.rater = self.session.rater
        self.queue.share = 0.0 if self.session.read_only else rating.repeats
        self.queue.margin = rating.unsure
        self.queue.bounds = (rating.score_low, rating.score_high)
        self.queue.progress.goal = rating.goal

    @property
    def target_group(self) -> str | None:
        """The group on screen."""
        return self.queue.current

    @property
    def answers(self) -> Candidates:
        """The cards."""
        return self.query_one(Candidates)

    @property
    def ballot(self) -> Ballot | None:
        """The rating in progress of the group on screen."""
        return self.queue.ballot

    def waiting(self) -> list[Group]:
        """Groups that wait for a vote: waiting users first, then the shortest clock."""
        self.queue.rater = self.session.rater  # it can be given on any screen
        return self.queue.waiting(self.session.state, self.session.now())

    def held_votes(self) -> list[Group]:
        """Groups whose vote from here can still be taken back, the newest vote first."""
        self.queue.rater = self.session.rater
        return self.queue.held(self.session.state, self.session.now())

    def last_voted(self) -> Group | None:
        """The group of the newest vote; older ones that are held are listed by `U` alone."""
        last = self.queue.last
        return self.session.state.groups.get(last.group_id) if last is not None else None

    def take_back(self, group: Group) -> None:
        """Take the vote on a group back."""
        self.queue.take_back(group)
        self.run_command("group.unrate", group_id=group.group_id, **self.rater())

    def fresh_cards(self) -> None:
        """Another group: no answer is selected or scrolled."""
        self.answers.zoomed = False
        self.answers.scroll_to_top()
        self.answers.select(None)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_name(self) -> None:
        """Ask for the name that goes with the votes from now on."""
        if said := await ask_name(self.host):
            self.queue.tell(said)
            if self.is_mounted:
                self.update_view(EVERYTHING)

    # --- leases ------------------------------------------------------------------------------

    def tend_lease(self, now: float) -> None:
        """With a second console attached, lease the group on screen while somebody is here."""
        session, current = self.session, self.queue.current
        shared = session.state.consoles > 1 and session.lost_at is None and not session.read_only
        used = self.host.front is self and now - session.input_at < IDLE
        wanted = current if shared and used and not self.queue.second else None
        asked = now - self._lease_asked < AGAIN
        if shared and used and asked and self._leased and self._leased == self.queue.wanted:
            return  # taken over: on screen as soon as the event of its lease is here
        if self._leased is not None and self._leased != wanted:
            self._give_back(self._leased)
        group = session.state.groups.get(wanted) if wanted is not None else None
        if group is None:
            return
        lease = group.lease
        mine = lease is not None and lease.holder == self.queue.holder
        fresh = mine and lease is not None and lease.until - now > RENEW
        if fresh or (self._leased == wanted and asked):
            return
        self._leased, self._lease_asked = group.group_id, now
        self._order_lease(group.group_id, LEASE)

    def _give_back(self, group_id: str) -> None:
        self._leased = None
        group = self.session.state.groups.get(group_id)
        if group is not None and group.lease is not None:
            self._order_lease(group_id, 0.0)

    @work(group="lease", exit_on_error=False)
    async def _order_lease(self, group_id: str, seconds: float) -> None:
        """A refusal needs no words: the state says who has it, and the queue goes past it."""
        await self.session.command(
            "group.lease",
            group_id=group_id,
            holder=self.queue.holder,
            seconds=seconds,
            **self.rater(),
        )

    @work(group="lease", exit_on_error=False)
    async def action_take(self) -> None:
        """Take over the first group that another console has: it comes on screen."""
        now = self.session.now()
        others = self.queue.with_others(self.session.state, now)
        if not others:
            return
        group_id = others[0].group_id
        outcome = await self.session.command(
            "group.lease",
            group_id=group_id,
            holder=self.queue.holder,
            seconds=LEASE,
            take=True,
            **self.rater(),
        )
        if not outcome.ok:
            self.host.say(outcome.message, "error")
            return
        if self._leased is not None and self._leased != group_id:
            self._give_back(self._leased)
        self._leased, self._lease_asked = group_id, now
        self.queue.bring(group_id)
        if self.is_mounted:
            self.update_view(EVERYTHING)

    def on_screen_suspend(self) -> None:
        """Another screen is in front: the group is free for others."""
        if self._leased is not None and self.host.front is not self:
            self._give_back(self._leased)
