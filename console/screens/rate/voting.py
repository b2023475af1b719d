"""Voting by keys: typing, sending and undoing votes; what the key areas of Rate share."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

from textual import work
from textual.binding import Binding, BindingType

from ajet_swarm.common.text import plain, plural
from console.screens.base import ConsoleScreen
from console.screens.group.actions import DetailKeys, GroupKeys, GroupTarget, digit_bindings
from console.screens.group.rater import cast_vote, rater_args, with_rater_name
from console.screens.rate.ballot import Ballot, Vote
from console.screens.rate.model import IGNORED, RateQueue, digit
from console.screens.rate.raters.text import second_words
from console.screens.rate.widgets import Answers
from console.session.app_state import EVERYTHING, Session
from console.session.command_plans import arguments, obstacle, refusal
from console.ui.keys import keys
from console.widgets.key_area import KeyArea
from core.commands.spec import NoChange
from core.state import Group

NO_GROUP = "No group is waiting for a vote"
_REPLACED_GROUP = "The group here has ended: this is another one. The key was ignored"
_RANKS = "Best first; the last answer follows by itself"
_REPLACED = frozenset({"unrate", "rerun"})
"""Actions on one group whose keys do something else here."""
_HIDDEN = frozenset({"accept", "abort"})


def _explain(area: KeyArea, queue: RateQueue, why: str) -> None:
    """Show why a key does nothing now; in the last line while no group waits."""
    if queue.group is not None:
        area.host.say(why, "warning")
    else:
        queue.set_message(plain(why), hint=True)
        area.changed()


class RateArea(KeyArea):
    """A key area of the rating screen."""

    def __init__(self, queue: RateQueue, *, focusable: bool = False) -> None:
        super().__init__(focusable=focusable)
        self.queue = queue

    def explain(self, key: str, why: str) -> None:
        _explain(self, self.queue, why)

    def hint(self, message: str) -> None:
        """Show a message about the group on screen, until that changes or the next vote."""
        self.queue.set_message(plain(message), hint=True)
        self.changed()

    @property
    def answers(self) -> Answers:
        """The widget with the answers."""
        return self.screen.query_one(Answers)

    @property
    def group_keys(self) -> "RateGroupKeys":
        """The keys for the group on screen, which send commands."""
        return self.screen.query_one(RateGroupKeys)


class RatedGroup(GroupTarget):
    """The group on the rating screen, whose answers are shuffled and may be anonymous."""

    def __init__(self, screen: ConsoleScreen, queue: RateQueue) -> None:
        super().__init__(screen)
        self._queue = queue

    @property
    def candidate(self) -> int:
        answers = self._screen.query_one(Answers)
        return answers.cards[answers.selected or 0].candidate.index if answers.cards else 0

    def number_of(self, index: int) -> str:
        """Return the digit of the answer on this screen, not the number of the candidate."""
        ballot = self._queue.ballot
        return digit(index, ballot.shown) if ballot is not None else super().number_of(index)

    def abort_details(self, group: Group) -> str:
        """Return what the user received; omit the answer's number while the vote is blind."""
        ballot = self._queue.ballot
        if group.returned is None or ballot is None:
            return super().abort_details(group)
        if not ballot.revealed:
            return "The user has been answered."
        return f"The user has been answered, with answer {self.number_of(group.returned)}."

    def succeeded(self, command: str, text: str) -> None:
        """Show it in the last line; a toast would cover the ballot."""
        self._queue.set_message(text)
        self._screen.update_view(EVERYTHING)


class RateGroupKeys(DetailKeys, inherit_bindings=False):
    """The keys for the group on the rating screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        replace(binding, show=binding.show and binding.action not in _HIDDEN)
        for binding in Binding.make_bindings([*GroupKeys.BINDINGS, *DetailKeys.BINDINGS])
        if binding.action not in _REPLACED
    ]

    def __init__(self, target: GroupTarget, queue: RateQueue) -> None:
        super().__init__(target)
        self.queue = queue

    def obstacle(self, action: str) -> str | None:
        if action in _HIDDEN and self.queue.group is None:
            return NO_GROUP
        return "" if action in _HIDDEN and self.queue.second else super().obstacle(action)

    def explain(self, key: str, why: str) -> None:
        _explain(self, self.queue, why)


class Voting(RateArea):
    """Turns keys into votes on the group on screen, sends them, and undoes the last one."""

    WRITING: ClassVar[frozenset[str]] = frozenset({"digit", "commit", "open", "arm", "undo"})
    BINDINGS: ClassVar[list[BindingType]] = [
        *digit_bindings("digit", "Best", "The best answer; in a ranking or scores the next digit"),
        *keys(
            ("0", "digit(0)", "Score 0"),
            ("enter", "commit", "Send", "rate.commit", "Send the typed vote"),
            ("s", "open('scores')", "Score", "rate.scores", "A digit for each answer"),
        ),
        *keys(
            ("greater_than_sign", "open('ranking')", "Rank", "rate.rank", _RANKS),
            ("t", "arm('tie')", "Tie", "rate.tie", "No preference: a dead group"),
            ("b", "arm('bad')", "Bad", "rate.bad", "All 0: a dead group"),
            shown=False,
        ),
        *keys(
            ("k", "arm('skip')", "Skip", "rate.skip", "To the end of the queue"),
            ("u", "undo", "Undo", "rate.undo", "Undo the last vote"),
            ("backspace", "back", "Delete the last key"),
            ("right_square_bracket", "other(1)", "Next group", "", "", "]"),
            ("left_square_bracket", "other(-1)", "Previous group", "", "", "["),
        ),
        *keys(("escape", "clear", "Clear", "rate.clear"), shown=False),
    ]

    # --- what is possible now ----------------------------------------------------------------

    def obstacle(self, action: str) -> str | None:
        group, ballot = self.queue.group, self.queue.ballot
        if action == "undo":
            voted = _undoable(self.queue)
            return why_kept(self.session, voted) if voted else "You have no vote to undo"
        if action == "clear" and self.queue.late is not None:  # without typed keys it leads back
            is_open = ballot is not None and (ballot.ranking or ballot.scoring or not ballot.empty)
            return None if is_open else ""
        if action not in self.WRITING or (action == "commit" and not group and self.queue.held()):
            return None
        if group is None:
            return NO_GROUP
        if action == "commit" and ballot is not None and not _enter_sends(self.queue):
            return ballot.lacking()
        return None if self.queue.second else obstacle("vote", group, self.session)

    def _refuses(self, group: Group) -> bool:
        """Return whether a vote on a group has no effect, and show why."""
        if why := obstacle("vote", group, self.session):
            self.host.say(why, "warning")
        return bool(why)

    def _open_ballot(self, key: str = "") -> tuple[Group, Ballot] | None:
        """Return the group on screen and its ballot when it accepts a vote now.

        Args:
            key: The key if it may vote: pressed too early it is meant for the group before.
        """
        group, ballot = self.queue.group, self.queue.ballot
        if group is None or ballot is None:
            return None
        if key and ballot.one_key and not self.queue.painted.is_read(ballot):
            self.queue.set_message(f"{IGNORED}{key} is ignored: this group has only just appeared")
            self.changed()
            return None
        if self.queue.just_replaced:
            self.host.say(_REPLACED_GROUP, "warning")
            return None
        # a second vote is valid although the group was sent
        return None if not self.queue.second and self._refuses(group) else (group, ballot)

    # --- keys --------------------------------------------------------------------------------

    def action_digit(self, key: int) -> None:
        """Vote for the best answer, or type a rank or a score."""
        if target := self._open_ballot(str(key)):
            self.touch(target[1])
            try:
                vote = target[1].digit(key)
            except ValueError as error:
                self.host.say(str(error), "warning")
                return
            self._send(*target, vote)

    def action_arm(self, rating: str) -> None:
        """Open tie or all bad, or send it with the second press. A skip leaves a second vote out,
        and puts any other group to the end of the queue."""
        if target := self._open_ballot():
            self.touch(target[1])
            if rating != "skip" or self.queue.second:
                self._send(*target, Vote(rating) if rating == "skip" else target[1].arm(rating))
            else:
                self.queue.put_back(target[0])
                self.changed()

    def action_open(self, kind: Literal["ranking", "scores"]) -> None:
        """Make the next digits ranks or scores."""
        if (ballot := self.queue.ballot) is not None:
            self.touch(ballot)
            ballot.start(kind)
            self.changed()

    def action_commit(self) -> None:
        """Send what was typed; with nothing typed send the last held vote at once."""
        ballot = self.queue.ballot
        vote = ballot.vote() if ballot is not None else None
        if vote is not None:
            if target := self._open_ballot("Enter"):
                self._send(*target, vote, confirmed=True)
        elif held := self.queue.held():
            if lacking := _lacking_votes(held[0]):
                votes = plural(lacking, "vote")
                self.queue.set_message(f"The group still lacks {votes}: nothing was sent")
                self.changed()
            else:
                self.group_keys.send("group.accept", group_id=held[0].group_id)

    def action_undo(self) -> None:
        """Undo the newest vote that can be undone."""
        if (group := _undoable(self.queue)) and self.obstacle("undo") is None:
            self.undo_vote(group)

    def action_back(self) -> None:
        """Delete the last key of the ballot."""
        if (ballot := self.queue.ballot) is not None:
            ballot.back()
            self.queue.set_message("")
            self.changed()

    def action_clear(self) -> None:
        """Delete all keys of the ballot, and select no answer."""
        if self.queue.ballot is not None:
            self.queue.ballot.clear()
        self.queue.set_message("")
        self.answers.reset()
        self.changed()

    def action_other(self, by: int) -> None:
        """Show another group of the queue; a vote typed for this one is sent, unless that needs
        Enter."""
        queue, group, ballot = self.queue, self.queue.group, self.queue.ballot
        waiting = queue.waiting()
        ids = [known.group_id for known in waiting]
        if not waiting or (queue.current not in ids and not queue.second):
            return
        index = ids.index(queue.current) + by if queue.current in ids else 0
        queue.show(waiting[index % len(waiting)])
        queue.set_message("")
        if group is not None and ballot is not None and not (ballot.armed or ballot.one_key):
            self._send(group, ballot, ballot.vote())
        self.changed()

    # --- sending -----------------------------------------------------------------------------

    def touch(self, ballot: Ballot) -> None:
        """Record a key of the ballot, and clear the message about earlier keys."""
        ballot.record_key(self.session.now())
        self.queue.set_message("")

    def _send(
        self, group: Group, ballot: Ballot, vote: Vote | None, *, confirmed: bool = False
    ) -> None:
        """Send a vote; one confirmed with Enter releases the last waiting user at once."""
        if vote is None:
            self.changed()
            return
        args = {"group_id": group.group_id, **vote.args()}
        args |= ballot.attention(self.session.now())
        with_rater_name(self, partial(self._cast, ballot, vote, args, confirmed))

    def _cast(self, ballot: Ballot, vote: Vote, args: dict[str, Any], confirmed: bool) -> None:
        """Start the command, then go on to the next group; the screen is painted afterwards."""
        queue, session = self.queue, self.session
        group = session.group(ballot.group_id)  # a dialog may have been open since the key
        if not ballot.second and group is not None and self._refuses(group):
            return
        args |= rater_args(session)
        if not ballot.second:
            if queue.guidelines is not None:
                args["guidelines"] = queue.guidelines.version
            args |= {"note": ballot.note(), "holder": session.holder}
        queue.record_sent(ballot, vote, args)
        if not ballot.second:
            at_once = confirmed and group is not None and group.user_waits and not queue.waiting()
            if at_once and group is not None:
                is_new = group.vote_of(session.rater, session.holder) is None
                at_once = _lacking_votes(group) <= int(is_new)
            self._deliver(group.query if group is not None else "", args, at_once)
        elif vote.rating != "skip":
            self._deliver_second(args)
        queue.advance()
        self.changed()

    @work(group="votes", exit_on_error=False)
    async def _deliver(self, question: str, args: dict[str, Any], at_once: bool) -> None:
        outcome = await cast_vote(self.host, question, **args)
        if outcome.message and not outcome.ok:  # the last line shows a success
            self.host.say(outcome.message, "error")
        self.queue.confirm(args["group_id"], outcome.ok)
        if outcome.ok and at_once:
            await self.session.command("group.accept", group_id=args["group_id"])
        self.changed()

    @work(group="votes", exit_on_error=False)
    async def _deliver_second(self, args: dict[str, Any]) -> None:
        outcome = await self.session.command("group.repeat", **args)
        stats = self.session.state.raters.get(self.session.rater)
        if outcome.ok:
            self.queue.set_message(second_words(outcome.message, stats))
        else:
            self.host.say(outcome.message, "error")
        self.changed()

    def undo_vote(self, group: Group) -> None:
        """Undo the vote on a group; the group comes back on screen."""
        self.queue.undo(group)
        args = rater_args(self.session)
        if group.overlap > 1 or self.queue.late is not None:
            args["holder"] = self.session.holder
        self.group_keys.send("group.unrate", group_id=group.group_id, **args)


def _undoable(queue: RateQueue) -> Group | None:
    """Return the group of the newest vote that can be undone, else of the newest vote."""
    last, held = queue.last_voted, queue.held()
    return held[0] if held and (last is None or why_kept(queue.session, last)) else last


def why_kept(session: Session, group: Group) -> str | None:
    """Return why the vote on a group cannot be undone."""
    args = arguments("group.unrate", group, session)
    why = refusal(session, "group.unrate", group, **args)
    # without a vote in its state the proxy may not have reported it yet
    return None if why is None or isinstance(why, NoChange) else why.what


def _enter_sends(queue: RateQueue) -> bool:
    """Return whether Enter has a use: a vote to send, or digits that wait for it."""
    ballot = queue.ballot
    waits = ballot is not None and (ballot.vote() is not None or not ballot.one_key)
    return waits or bool(queue.held())


def _lacking_votes(group: Group) -> int:
    """Return how many votes of other raters a group waits for; 0 if one vote is enough."""
    return group.overlap - len(group.votes) if group.lacks_votes else 0
