"""The keys that rate: what is typed, what is sent, what is taken back."""

from functools import partial
from typing import ClassVar

from textual import events, work

from ajet_swarm.common.text import plain
from console.models.ballot import Ballot, Vote
from console.screens.rate.lease import RateDesk
from console.screens.rater import cast_vote, under_name
from console.session.app_state import EVERYTHING
from console.views.group_detail import undo_left, vote_refusal
from console.views.rating import second_words
from core.state import Group

_VOTING = frozenset({"digit", "scores", "tie", "bad", "skip", "commit", "vote"})
_SEALING = frozenset({"accept", "abort", "unrate"})
_NOTHING = "Nothing waits for a vote"


class Voting(RateDesk):
    """A screen that rates one group of a queue after the other."""

    quiet: ClassVar[bool] = True
    _pressed = ""
    """The newest key."""

    def on_key(self, event: events.Key) -> None:
        """Which key it is that is told about."""
        self._pressed = event.key

    @property
    def takes_digits(self) -> bool:
        """With nothing to rate digits switch screens, unless a group was here a moment ago."""
        return self.group is not None or self.queue.just_emptied(self.session.now())

    def told(self, why: str) -> None:
        """Why a key does nothing now; the last line has room for that while nothing waits."""
        if self.group is not None:
            super().told(why)
        elif self.takes_digits or self._pressed not in {
            str(one.digit) for one in self.host.shown_places
        }:
            self.hinted(why)

    def ordered(self, message: str) -> None:
        """What went well stands in the last line; a toast would cover the ballot."""
        self.queue.tell(plain(message))
        self.update_view(EVERYTHING)

    def hinted(self, message: str) -> None:
        """What is to be known of the group on screen; it goes with that, or with the next vote."""
        self.queue.tell(plain(message), hint=True)
        self.update_view(EVERYTHING)

    def touched(self, ballot: Ballot) -> None:
        """A key of the ballot: what was said of the keys before is old."""
        ballot.touched(self.session.now())
        self.queue.tell("")

    def obstacle(self, action: str) -> str | None:
        """Undo is about the last vote, whatever is on screen; so is Enter with nothing typed."""
        if action == "undo":
            return self._undo_obstacle()
        if action == "commit" and self.group is None and self.held_votes():
            return None
        if self.group is None and action in _VOTING | _SEALING:
            return _NOTHING
        if self.queue.second and action in _VOTING:
            return None
        if self.queue.second and action in _SEALING:
            return ""
        return super().obstacle(action)

    def refuse(self, group: Group) -> bool:
        """A second vote is recorded though the group was sent."""
        return not self.queue.second and super().refuse(group)

    def _undo_obstacle(self) -> str | None:
        group = self.last_voted()
        if group is None:
            return "You have no vote to undo"
        if why := vote_refusal(group):
            return why
        if group.rating is not None and not undo_left(group, self.session.now()):
            return "It is being sent: too late to undo it"
        return None

    # --- keys --------------------------------------------------------------------------------

    def action_digit(self, key: int) -> None:
        """A place, or a score."""
        group, ballot = self.group, self.ballot
        if group is None or ballot is None or self._surprised() or self.refuse(group):
            return
        self.touched(ballot)
        try:
            vote = ballot.digit(key)
        except ValueError as error:
            self.host.say(str(error), "warning")
            return
        if vote is not None:
            self._send(group, ballot, vote)
        else:
            self.update_view(EVERYTHING)

    def _surprised(self) -> bool:
        if not self.queue.surprised(self.session.now()):
            return False
        self.host.say("The clock ran out: this is another group. The key was ignored", "warning")
        return True

    def action_commit(self) -> None:
        """Send what was typed; with nothing typed the last vote is held no longer."""
        group, ballot = self.group, self.ballot
        vote = ballot.vote() if ballot is not None else None
        if vote is None:
            if held := self.held_votes():
                self.run_command("group.accept", group_id=held[0].group_id)
            return
        if group is None or ballot is None or self._surprised() or self.refuse(group):
            return
        self._send(group, ballot, vote, confirmed=True)

    def action_scores(self) -> None:
        """From here digits are scores."""
        group, ballot = self.group, self.ballot
        if group is None or ballot is None:
            return
        self.touched(ballot)
        ballot.start_scores()
        self.update_view(EVERYTHING)

    def action_tie(self) -> None:
        """No preference."""
        self._arm("tie")

    def action_bad(self) -> None:
        """All bad."""
        self._arm("bad")

    def _arm(self, rating: str) -> None:
        group, ballot = self.group, self.ballot
        if group is None or ballot is None or self._surprised() or self.refuse(group):
            return
        self.touched(ballot)
        vote = ballot.arm(rating)
        if vote is not None:
            self._send(group, ballot, vote)
        else:
            self.update_view(EVERYTHING)

    def action_skip(self) -> None:
        """Send nothing; undo is its question."""
        group, ballot = self.group, self.ballot
        if group is None or ballot is None or self._surprised() or self.refuse(group):
            return
        self.touched(ballot)
        self._send(group, ballot, Vote("skip"))

    def _send(self, group: Group, ballot: Ballot, vote: Vote, *, confirmed: bool = False) -> None:
        """Send a vote; one that Enter has confirmed keeps the last waiting user no longer."""
        look = ballot.look(self.session.now())
        under_name(self, partial(self._cast, group.group_id, ballot, vote, look, confirmed))

    def _cast(
        self,
        group_id: str,
        ballot: Ballot,
        vote: Vote,
        look: dict[str, object],
        confirmed: bool,
    ) -> None:
        group = self.session.group(group_id)  # as it is by now: a question may have come between
        if not ballot.second and group is not None and super().refuse(group):
            return
        self.queue.sent(ballot, vote, self.session.now())
        if ballot.second:
            self._order_second(group_id, vote, look)
        else:
            held_user = group is not None and group.user_waits
            at_once = confirmed and held_user and not self.waiting()
            self._order_vote(group_id, ballot, vote, look, at_once=at_once)
        self.update_view(EVERYTHING)

    @work(group="votes", exit_on_error=False)
    async def _order_vote(
        self,
        group_id: str,
        ballot: Ballot,
        vote: Vote,
        look: dict[str, object],
        *,
        at_once: bool,
    ) -> None:
        if self.guided:
            look["guidelines"] = self.guided
        if self.queue.holder:
            look["holder"] = self.queue.holder
        group = self.session.group(group_id)
        outcome = await cast_vote(
            self.host,
            group.query if group is not None else "",
            group_id=group_id,
            note=ballot.note(),
            **_said(vote),
            **self.rater(),
            **look,
        )
        if outcome.message and not outcome.ok:  # what went well stands in the last line
            self.host.say(outcome.message, "error")
        self.queue.arrived(group_id, outcome.ok)
        if outcome.ok and at_once:
            await self.session.command("group.accept", group_id=group_id)
        if self.is_current:
            self.update_view(EVERYTHING)

    @work(group="votes", exit_on_error=False)
    async def _order_second(self, group_id: str, vote: Vote, look: dict[str, object]) -> None:
        if vote.rating == "skip":
            return
        outcome = await self.session.command(
            "group.repeat", group_id=group_id, **_said(vote), **self.rater(), **look
        )
        stats = self.session.state.raters.get(self.session.rater)
        if outcome.ok:
            self.queue.tell(second_words(outcome.message, stats))
        else:
            self.host.say(outcome.message, "error")
        if self.is_current:
            self.update_view(EVERYTHING)

    # --- back and on -------------------------------------------------------------------------

    def action_undo(self) -> None:
        """Undo the last vote; its group comes back on screen."""
        group = self.last_voted()
        if group is not None and self._undo_obstacle() is None:
            self.take_back(group)

    def action_back(self) -> None:
        """Take the last key back."""
        if self.ballot is not None:
            self.ballot.back()
            self.queue.tell("")
            self.update_view(EVERYTHING)

    def action_clear(self) -> None:
        """Take all keys back and share the room again."""
        if self.ballot is not None:
            self.ballot.clear()
        self.queue.tell("")
        self.fresh_cards()
        self.update_view(EVERYTHING)

    def action_other(self, by: int) -> None:
        """Another group; what was typed for this one is sent."""
        queue = self.waiting()
        ids = [group.group_id for group in queue]
        if not queue or (self.queue.current not in ids and not self.queue.second):
            return
        place = ids.index(self.queue.current) + by if self.queue.current in ids else 0
        following = queue[place % len(queue)]
        group, ballot = self.group, self.ballot
        vote = ballot.vote() if ballot is not None and not ballot.armed else None
        self.queue.go(following, self.session.now())
        self.queue.tell("")
        self.fresh_cards()
        if vote is not None and group is not None and ballot is not None:
            self._send(group, ballot, vote)
        self.update_view(EVERYTHING)


def _said(vote: Vote) -> dict[str, object]:
    """A vote as arguments of its command."""
    found: dict[str, object] = {"rating": vote.rating}
    if vote.order:
        found["order"] = list(vote.order)
    if vote.scores:
        found["scores"] = list(vote.scores)
    return found
