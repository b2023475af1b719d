"""The inbox as a list in some order, and as a queue of groups for late votes."""

from collections.abc import Callable, Mapping, Sequence

from console.screens.rate.model import RateQueue
from console.session.app_state import Session
from console.session.filters import Filter
from core.state import Candidate, Group
from core.state.inbox import InboxItem

ORDERS: Mapping[str, Callable[[InboxItem], float]] = {
    "newest": lambda item: -item.closed_at,
    "oldest": lambda item: item.closed_at,
    "largest disagreement": lambda item: -item.opposition,
}
"""Order -> what it sorts by; equal items are newest first."""
AHEAD = 2
"""Groups after the open one that are read ahead."""


class InboxView:
    """The items of the inbox that pass a filter, in an order.

    Attributes:
        rate: The queue of the open groups, which shows a group that is asked again.
        order: One of `ORDERS`.
        filter: As on Requests.
        asked: Id of the group that was asked again from here; empty for none.
    """

    def __init__(self, rate: RateQueue) -> None:
        self.rate = rate
        self.session: Session = rate.session
        self.order = next(iter(ORDERS))
        self.filter = Filter()
        self.asked = ""
        self._key: tuple[int, str, str] | None = None
        self._items: Sequence[InboxItem] = ()

    def items(self) -> Sequence[InboxItem]:
        """Return the items."""
        state = self.session.state
        key = (state.seq, self.order, self.filter.text)
        if key != self._key:
            passed = [
                item
                for item in reversed(state.inbox.values())
                if not self.filter or self.filter.matches(self.group_of(item))
            ]
            self._key, self._items = key, sorted(passed, key=ORDERS[self.order])
        return self._items

    def group_of(self, item: InboxItem) -> Group:
        """Return the group of an item; what the item says of it if the texts were not read."""
        return self.session.group(item.group_id) or _as_group(item)

    def needs_vote(self, item: InboxItem) -> bool:
        """Return whether an item lacks the vote of this rater."""
        own = item.vote_of(self.session.rater, self.session.holder)
        return own is None and not item.complete

    def turn(self) -> None:
        """Take the next order."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]

    def ask_again(self, group_id: str) -> None:
        """Have a group that was asked again shown among the open groups as soon as it waits."""
        self.asked = self.rate.next_id = group_id
        self.rate.set_message("Asked again: it opens here as soon as its answers are there")


def _as_group(item: InboxItem) -> Group:
    candidates = [
        Candidate(
            index=index,
            phase="ended" if index in item.answered else "failed",
            finish_reason="stop" if index in item.answered else "",
            auto_reward=reward,
            reward=reward if item.sent else None,
        )
        for index, reward in enumerate(item.rewards)
    ]
    return Group(
        group_id=item.group_id,
        request_id="",
        server=item.server,
        task_id="",
        n=item.n,
        query=item.query,
        opened_at=item.opened_at,
        closed_at=item.closed_at,
        phase="DONE" if item.sent else "ABORTED",
        source="auto" if item.sent else "",
        unrated=item.sent,
        step=item.step,
        overlap=item.overlap,
        votes=item.votes,
        rating=item.votes[-1] if item.complete else None,
        candidates=candidates,
    )


class InboxQueue(RateQueue):
    """The groups of the inbox that lack this rater's vote, from the one on screen on.

    Args:
        view: The list.
        first: Id of the group to show first.

    Attributes:
        gone: Groups whose answers are no longer stored.
    """

    def __init__(self, view: InboxView, first: str) -> None:
        super().__init__(view.session)
        self.view = view
        self.next_id = first
        self.gone: set[str] = set()

    def unvoted(self) -> list[InboxItem]:
        """Return the items of the groups, whether their texts were read or not."""
        items = self.view.items()
        ids = [item.group_id for item in items]
        shown = self.current if self.next_id is None else self.next_id
        place = ids.index(shown) if shown in ids else 0
        return [
            item
            for item in (*items[place:], *items[:place])
            if self.view.needs_vote(item)
            and item.group_id not in self.gone
            and not self._is_in_transit(item.group_id)
        ]

    def unread(self) -> list[str]:
        """Return the ids of the open group and those after it whose texts are to be read."""
        ids = [item.group_id for item in self.unvoted()[: 1 + AHEAD]]
        return [group_id for group_id in ids if self._known(group_id) is None]

    def _known(self, group_id: str) -> Group | None:
        group = self.session.group(group_id)
        return None if group is None or group.brief else group

    def waiting(self) -> list[Group]:
        groups = (self._known(item.group_id) for item in self.unvoted())
        return [group for group in groups if group is not None]

    def open(self) -> list[Group]:
        return self.waiting()

    def leased_by_others(self) -> list[Group]:
        return []

    def held(self) -> list[Group]:
        return []

    @property
    def last_voted(self) -> Group | None:
        return self.session.group(self.last.group_id) if self.last is not None else None

    def advance(self) -> bool:
        inbox, before, waiting = self.session.state.inbox, self.current, self.waiting()
        self._ballots = {name: ballot for name, ballot in self._ballots.items() if name in inbox}
        by_id = {group.group_id: group for group in waiting}
        if self.next_id is not None and self.next_id not in by_id:
            if self.next_id in inbox and self.next_id not in self.gone:
                return False  # its texts are being read
            self.next_id = None
        shown = by_id.get(self.next_id or self.current or "")
        if shown is None:
            self.show(waiting[0] if waiting else None)
        elif self.next_id is not None or self.ballot is None:
            self.show(shown)
        self.next_id = None
        return before != self.current

    def pass_over(self) -> None:
        """Show the next group; the one on screen stays in the inbox."""
        self.show(next(iter(self.waiting()[1:]), self.group))
