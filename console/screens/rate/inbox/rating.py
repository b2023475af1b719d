"""The rating screen of the inbox: that of the open groups, with late votes."""

from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.models.app_host import AppHost
from console.screens.group.rater import rater_args
from console.screens.rate.inbox.model import InboxQueue, InboxView
from console.screens.rate.inbox.text import empty_lines, late_line, title_line
from console.screens.rate.lease import LeaseKeeper
from console.screens.rate.screen import RateScreen
from console.screens.rate.tools import RaterTools
from console.screens.rate.voting import Voting
from console.session.app_state import EVERYTHING
from console.session.command_plans import obstacle
from console.text.lines import EMPTY
from console.ui.keys import keys
from console.widgets.pane import centred
from core.state import Group

_KEPT = frozenset({"guidelines", "judge", "raters", "name"})
"""Tools of the rating screen that have a meaning here."""


async def ask_again(app: AppHost, view: InboxView, group_id: str) -> bool:
    """Ask the prompt of a group again; return whether a new group was opened."""
    outcome = await app.session.command("group.rerun", group_id=group_id)
    if outcome.ok:
        view.ask_again(str(outcome.data.get("group_id", "")))
    else:
        app.say(outcome.message, "error")
    return outcome.ok


class LateVoting(Voting):
    """Late votes: nothing is held, so a vote is withdrawn at once; a skip passes a group over."""

    def action_arm(self, rating: str) -> None:
        if rating != "skip":
            super().action_arm(rating)
        elif isinstance(self.queue, InboxQueue):
            self.queue.pass_over()
            self.changed()

    def action_clear(self) -> None:
        """Delete the typed keys; without any go back to the list."""
        if self.queue.ballot is None or (self.queue.ballot.empty and not self.queue.ballot.scoring):
            self.screen.dismiss()
        else:
            super().action_clear()

    def undo_vote(self, group: Group) -> None:
        self.queue.undo(group)
        holder, args = self.session.holder, rater_args(self.session)
        self._group_keys.send("group.unrate", group_id=group.group_id, holder=holder, **args)


class LateTools(RaterTools, inherit_bindings=False):
    """The tools that have a meaning on the inbox, and ask again."""

    WRITING: ClassVar[frozenset[str]] = frozenset({"again", "name"})
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            binding
            for binding in Binding.make_bindings(RaterTools.BINDINGS)
            if binding.action in _KEPT
        ),
        *keys(
            ("A", "again", "Ask again", "group.rerun", "The same prompt as a new group, on Rate"),
            ("I", "list", "List", "rate.inbox", "The list of the inbox"),
        ),
    ]

    def obstacle(self, action: str) -> str | None:
        if action == "again":
            return obstacle("rerun", self.queue.group, self.session)
        return super().obstacle(action)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_again(self) -> None:
        """Ask the same prompt again, and go back to Rate, where it opens."""
        group, queue = self.queue.group, self.queue
        assert isinstance(queue, InboxQueue)
        if group is not None and await ask_again(self.host, queue.view, group.group_id):
            self.screen.dismiss()

    def action_list(self) -> None:
        """Go back to the list."""
        self.screen.dismiss()


class _NoLease(LeaseKeeper):
    """Leases nothing: a group that has ended is open to all raters."""

    def update(self) -> None:
        pass


class InboxRating(RateScreen):
    """The groups of the inbox, one at a time.

    Args:
        view: The list.
        first: Id of the group to show first.
    """

    area: ClassVar[str] = "Inbox"
    help_text: ClassVar[str] = (
        "A group that ended before its vote. Keys are those of Rate; the vote is late: it counts "
        "for agreement, share of wins and exports, and is never sent. u withdraws the last one, k "
        "passes a group over, A asks the prompt again as a new group on Rate, Esc goes back to the "
        "list."
    )
    first_keys: tuple[str, ...] = ("again",)

    def __init__(self, view: InboxView, first: str) -> None:
        self.inbox = InboxQueue(view, first)
        super().__init__(self.inbox)
        self.voting = LateVoting(self.queue, self.group_keys)
        self.lease = _NoLease(self, self.queue)
        self._reading = False

    def tools(self) -> RaterTools:
        return LateTools(self.queue, self.group_keys, self.voting, self.lease)

    def update_view(self, dirty: frozenset[str]) -> None:
        super().update_view(dirty)
        ids = self.inbox.unread()
        if ids and not self._reading:
            self._reading = True
            self._read(ids)

    @work(group="inbox", exit_on_error=False)
    async def _read(self, ids: list[str]) -> None:
        """Read the open group and those after it; keep no others."""
        read, session = self.session.read_ahead, self.session
        try:
            for group_id in ids:
                group = await session.read_group(group_id)
                if group is not None and group.answered:
                    read[group_id] = group
                    continue
                self.inbox.gone.add(group_id)
                self.host.say(f"The answers of group {group_id} are no longer stored", "warning")
        except AjetError as error:
            self.host.say(f"The inbox cannot be read: {error}", "error")
            return  # the next change of the state reads again
        finally:
            self._reading = False
        last = self.queue.last
        needed = {*ids, self.queue.current, last.group_id if last is not None else None}
        needed.update(item.group_id for item in self.inbox.unvoted()[:4])
        for group_id in set(read) - needed:
            del read[group_id]
        self.update_view(EVERYTHING)

    def _paint(self) -> None:
        super()._paint()
        width = max(20, self.size.width)
        view, group = self.inbox.view, self.queue.group
        self._pane("title").show_lines([title_line(view, width)])
        self._pane("banner").show_lines([late_line(group, width) if group is not None else EMPTY])
        if group is None:
            text = empty_lines(view, reading=self.inbox.next_id is not None)
            self._pane("empty").show(
                text, lambda room: [EMPTY, *(centred(row, room, "$muted") for row in text)]
            )
        self._pane("clock").show_lines([EMPTY])
