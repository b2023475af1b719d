"""Voting by keys: typing, sending and undoing votes."""

from functools import partial

from console.models.ballot import Ballot, Vote
from console.models.group_obstacles import arguments
from console.screens.group_actions import GroupActions
from console.screens.parts import ScreenPart, in_background
from console.screens.rate.context import RatingContext
from console.screens.rater import ask_name, cast_vote, with_rater_name
from console.session.command_plans import refusal
from console.views.rating import second_words
from core.commands.refusal import NoChange
from core.state import Group

_VOTING = frozenset({"digit", "scores", "tie", "bad", "skip", "commit", "vote"})
_SEALING = frozenset({"accept", "abort", "unrate"})
_NO_GROUP = "No group is waiting for a vote"


class VoteController(ScreenPart):
    """Turns keys into votes on the group on screen, sends them, and undoes the last one."""

    def __init__(self, context: RatingContext, group_actions: GroupActions) -> None:
        super().__init__(context.screen)
        self._context = context
        self._queue = context.queue
        self._group_actions = group_actions

    # --- what is possible now ----------------------------------------------------------------

    def takes_digits(self) -> bool:
        """Return whether digits vote; without a group to rate they soon switch screens."""
        return self._context.group is not None or self._queue.just_emptied(self.session.now())

    def obstacle(self, action: str) -> str | None:
        """Return why an action on the group is unavailable now; None when it is available."""
        group = self._context.group
        if action == "undo":
            return self._undo_obstacle()
        if action == "commit" and group is None and self._context.held_votes():
            return None
        if group is None and action in _VOTING | _SEALING:
            return _NO_GROUP
        if self._queue.second and action in _VOTING:
            return None
        if self._queue.second and action in _SEALING:
            return ""
        return self._group_actions.obstacle(action)

    def _undo_obstacle(self) -> str | None:
        """Return why the last vote cannot be undone; independent of the group on screen."""
        group = self._context.last_voted()
        if group is None:
            return "You have no vote to undo"
        args = arguments("group.unrate", group, self.session)
        why = refusal(self.session, "group.unrate", group, **args)
        if why is None or isinstance(why, NoChange):  # the proxy may not have reported the vote yet
            return None
        return why.what

    def _refuse(self, group: Group) -> bool:
        """Refuse a vote without effect; a second vote is valid although the group was sent."""
        return not self._queue.second and self._group_actions.refuse_vote(group)

    def _open_ballot(self) -> tuple[Group, Ballot] | None:
        """Return the group on screen and its ballot when it accepts a vote now."""
        group, ballot = self._context.group, self._context.ballot
        if group is None or ballot is None:
            return None
        if self._queue.just_replaced(self.session.now()):
            message = "The group here has ended: this is another one. The key was ignored"
            self.host.say(message, "warning")
            return None
        return None if self._refuse(group) else (group, ballot)

    def touch(self, ballot: Ballot) -> None:
        """Record a key of the ballot, and clear the message about earlier keys."""
        ballot.record_key(self.session.now())
        self._queue.set_message("")

    # --- keys --------------------------------------------------------------------------------

    def action_digit(self, key: int) -> None:
        """Type a rank or a score."""
        target = self._open_ballot()
        if target is None:
            return
        group, ballot = target
        self.touch(ballot)
        try:
            vote = ballot.digit(key)
        except ValueError as error:
            self.host.say(str(error), "warning")
            return
        self._send_or_show(group, ballot, vote)

    def action_commit(self) -> None:
        """Send what was typed; with nothing typed send the last held vote at once."""
        ballot = self._context.ballot
        vote = ballot.vote() if ballot is not None else None
        if vote is None:
            if held := self._context.held_votes():
                if missing := _missing_votes(held[0]):
                    votes = "1 vote" if missing == 1 else f"{missing} votes"
                    self._queue.set_message(f"The group still lacks {votes}: nothing was sent")
                    self._context.repaint()
                else:
                    self._group_actions.commands.send("group.accept", group_id=held[0].group_id)
            return
        if target := self._open_ballot():
            self._send(*target, vote, confirmed=True)

    def action_scores(self) -> None:
        """Make the next digits scores."""
        group, ballot = self._context.group, self._context.ballot
        if group is None or ballot is None:
            return
        self.touch(ballot)
        ballot.start_scores()
        self._context.repaint()

    def action_tie(self) -> None:
        """Vote for no preference; the second press sends it."""
        self._arm("tie")

    def action_bad(self) -> None:
        """Vote that all answers are bad; the second press sends it."""
        self._arm("bad")

    def _arm(self, rating: str) -> None:
        target = self._open_ballot()
        if target is None:
            return
        group, ballot = target
        self.touch(ballot)
        self._send_or_show(group, ballot, ballot.arm(rating))

    def action_skip(self) -> None:
        """Skip the group, which aborts it; the second press does. A second vote is left out."""
        if not self._queue.second:
            self._arm("skip")
        elif target := self._open_ballot():
            self._send(*target, Vote("skip"))

    def _send_or_show(self, group: Group, ballot: Ballot, vote: Vote | None) -> None:
        if vote is not None:
            self._send(group, ballot, vote)
        else:
            self._context.repaint()

    # --- sending -----------------------------------------------------------------------------

    def _send(self, group: Group, ballot: Ballot, vote: Vote, *, confirmed: bool = False) -> None:
        """Send a vote; one confirmed with Enter releases the last waiting user at once."""
        attention = ballot.attention(self.session.now())
        cast = partial(self._cast, group.group_id, ballot, vote, attention, confirmed)
        with_rater_name(self.screen, cast)

    def _cast(
        self,
        group_id: str,
        ballot: Ballot,
        vote: Vote,
        attention: dict[str, object],
        confirmed: bool,
    ) -> None:
        group = self.session.group(group_id)  # a dialog may have been open since the key
        if not ballot.second and group is not None and self._group_actions.refuse_vote(group):
            return
        self._queue.record_sent(ballot, vote, self.session.now())
        if ballot.second:
            self._send_second(group_id, vote, attention)
        else:
            user_waits = group is not None and group.user_waits
            is_new = group is None or group.vote_of(self.session.rater, self._queue.holder) is None
            completes = group is not None and _missing_votes(group) <= int(is_new)
            at_once = confirmed and user_waits and completes and not self._context.waiting()
            self._send_vote(group_id, ballot, vote, attention, at_once=at_once)
        self._context.repaint()

    @in_background("votes")
    async def _send_vote(
        self,
        group_id: str,
        ballot: Ballot,
        vote: Vote,
        attention: dict[str, object],
        *,
        at_once: bool,
    ) -> None:
        if self._context.guidelines is not None:
            attention["guidelines"] = self._context.guidelines.version
        if self._queue.holder:
            attention["holder"] = self._queue.holder
        group = self.session.group(group_id)
        outcome = await cast_vote(
            self.host,
            group.query if group is not None else "",
            group_id=group_id,
            note=ballot.note(),
            **_vote_args(vote),
            **self._group_actions.rater_args(),
            **attention,
        )
        if outcome.message and not outcome.ok:  # the last line shows a success
            self.host.say(outcome.message, "error")
        self._queue.confirm(group_id, outcome.ok)
        if outcome.ok and at_once:
            await self.session.command("group.accept", group_id=group_id)
        if self.screen.is_current:
            self._context.repaint()

    @in_background("votes")
    async def _send_second(self, group_id: str, vote: Vote, attention: dict[str, object]) -> None:
        if vote.rating == "skip":
            return
        outcome = await self.session.command(
            "group.repeat",
            group_id=group_id,
            **_vote_args(vote),
            **self._group_actions.rater_args(),
            **attention,
        )
        stats = self.session.state.raters.get(self.session.rater)
        if outcome.ok:
            self._queue.set_message(second_words(outcome.message, stats))
        else:
            self.host.say(outcome.message, "error")
        if self.screen.is_current:
            self._context.repaint()

    # --- undo, and other groups --------------------------------------------------------------

    def undo_vote(self, group: Group) -> None:
        """Undo the vote on a group; the group comes back on screen."""
        self._queue.undo(group)
        rater = self._group_actions.rater_args()
        if group.overlap > 1:
            rater = {**rater, "holder": self._queue.holder}
        self._group_actions.commands.send("group.unrate", group_id=group.group_id, **rater)

    def action_undo(self) -> None:
        """Undo the last vote."""
        group = self._context.last_voted()
        if group is not None and self._undo_obstacle() is None:
            self.undo_vote(group)

    def action_back(self) -> None:
        """Delete the last key of the ballot."""
        if self._context.ballot is not None:
            self._context.ballot.back()
            self._queue.set_message("")
            self._context.repaint()

    def action_clear(self) -> None:
        """Delete all keys of the ballot, and select no answer."""
        if self._context.ballot is not None:
            self._context.ballot.clear()
        self._queue.set_message("")
        self._context.reset_answers()
        self._context.repaint()

    def action_other(self, by: int) -> None:
        """Show another group of the queue; a vote typed for this one is sent."""
        queue = self._queue
        waiting = self._context.waiting()
        ids = [group.group_id for group in waiting]
        if not waiting or (queue.current not in ids and not queue.second):
            return
        index = ids.index(queue.current) + by if queue.current in ids else 0
        following = waiting[index % len(waiting)]
        group, ballot = self._context.group, self._context.ballot
        vote = ballot.vote() if ballot is not None and not ballot.armed else None
        queue.show(following, self.session.now())
        queue.set_message("")
        self._context.reset_answers()
        if vote is not None and group is not None and ballot is not None:
            self._send(group, ballot, vote)
        self._context.repaint()

    @in_background("question", exclusive=True)
    async def action_name(self) -> None:
        """Ask for the name that is recorded with the next votes."""
        if message := await ask_name(self.host):
            self._queue.set_message(message)
            if self.screen.is_mounted:
                self._context.repaint()


def _missing_votes(group: Group) -> int:
    """Return how many votes of other raters a group waits for; 0 if one vote is enough."""
    if group.overlap == 1 or group.settled is not None:
        return 0
    return max(0, group.overlap - len(group.votes))


def _vote_args(vote: Vote) -> dict[str, object]:
    """Return a vote as arguments of its command."""
    args: dict[str, object] = {"rating": vote.rating}
    if vote.order:
        args["order"] = list(vote.order)
    if vote.scores:
        args["scores"] = list(vote.scores)
    return args
