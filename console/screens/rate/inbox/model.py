"""The inbox as a list in some order, and as a queue of groups for late votes."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from console.session.app_state import Session
from console.session.filters import Filter
from console.text.values import fields_of
from core.state import Candidate, Group
from core.state.inbox import InboxItem

ORDERS: Mapping[str, Callable[[InboxItem], float]] = {
    "newest": lambda item: -item.closed_at,
    "oldest": lambda item: item.closed_at,
    "largest disagreement": lambda item: -item.opposition,
}
"""Order -> what it sorts by; equal items are newest first."""
NEAR = 8
"""Groups that a queue has at a time: a key must not look at all of them."""
AHEAD = 2
"""Groups after the open one that are read ahead."""


class InboxView:
    """The items of the inbox that pass a filter, in an order.

    Attributes:
        order: One of `ORDERS`.
        filter: As on Requests.
        asked: Id of the new group that Rate is to show, after a prompt was asked again.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
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
    same = "group_id server n query opened_at closed_at step overlap votes"
    return Group(
        **fields_of(item, same),
        request_id="",
        task_id="",
        phase="DONE" if item.sent else "ABORTED",
        source="auto" if item.sent else "",
        unrated=item.sent,
        rating=item.votes[-1] if item.complete else None,
        candidates=candidates,
    )


class InboxGroups:
    """The groups of the inbox that lack this rater's vote, for the rating queue.

    Args:
        view: The list.

    Attributes:
        gone: Groups whose answers are no longer stored.
    """

    def __init__(self, view: InboxView) -> None:
        self.view = view
        self.gone: set[str] = set()

    def groups(self, first: str | None) -> list[Group]:
        """Return the next ones whose texts were read, from the one with the id `first` on, and the
        one before it last."""
        known = (self._known(item.group_id) for item in self._items(first))
        return [group for group in known if group is not None]

    def unread(self, first: str | None) -> list[str]:
        """Return the ids of the open group and those after it whose texts are to be read."""
        ids = [item.group_id for item in self._items(first)[: 1 + AHEAD]]
        return [group_id for group_id in ids if self._known(group_id) is None]

    def is_unread(self, group_id: str | None) -> bool:
        """Return whether the texts of a group are still to be read."""
        if group_id is None or group_id in self.gone:
            return False
        return group_id in self.view.session.state.inbox and self._known(group_id) is None

    def _items(self, first: str | None) -> list[InboxItem]:
        """Return the next items from that of a group on, and the one before it last."""
        items = self.view.items()
        place = next((at for at, item in enumerate(items) if item.group_id == first), 0)
        order = [*items[place:], *items[:place]]
        after = list(islice(filter(self._lacks_vote, order), NEAR))
        before = next(filter(self._lacks_vote, reversed(order)), None)
        return after if before is None or before in after else [*after, before]

    def _lacks_vote(self, item: InboxItem) -> bool:
        return self.view.needs_vote(item) and item.group_id not in self.gone

    def _known(self, group_id: str) -> Group | None:
        group = self.view.session.group(group_id)
        return None if group is None or group.brief else group
