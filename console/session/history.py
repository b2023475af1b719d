"""Groups older than state keeps: pages of the journal, and a search that reads it backwards.

A group is named by its rank, 0 for the first one ever opened, which new groups do not change. In a
journal that was pruned the lowest ranks are empty.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from console.session.filters import Filter
from core.state import Group

PAGE = 50
"""Groups that are read at once."""
KEPT = 40
"""Pages kept; those looked at longest ago make room."""
SEARCH_PAGE = 200
SEARCH_STEP = 40
"""Matches after which a search waits until more are wanted."""
SEARCH_SPAN = 2_000
"""Groups after which it waits, whatever was found: the proxy has users to serve."""


class History:
    """The pages that were read."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, list[Group | None]] = OrderedDict()
        self._ranks: dict[str, int] = {}
        self.start = 0
        """Rank of the oldest group: as many were pruned."""
        self.since = 0.0
        """When the newest pruned event happened, Unix seconds; 0 when nothing was pruned."""
        self.asked = False
        """`start` was asked for."""

    def clear(self) -> None:
        """It is another journal now."""
        self._pages.clear()
        self._ranks.clear()
        self.start, self.since, self.asked = 0, 0.0, False

    def starts(self, start: int, since: float) -> None:
        """Note where the journal begins; pages that were read before it was pruned are dropped."""
        if start != self.start:
            self._pages.clear()
            self._ranks.clear()
        self.start, self.since, self.asked = start, since, True

    def at(self, rank: int) -> Group | None:
        """The group of that rank; None while its page was not read."""
        page = self._pages.get(rank // PAGE)
        if page is None:
            return None
        self._pages.move_to_end(rank // PAGE)
        place = rank % PAGE
        return page[place] if place < len(page) else None

    def missing(self, lowest: int, highest: int) -> int | None:
        """First rank of a page that is needed to show these ranks; None when all were read.

        A page that was short when it was read is needed again once there are more groups.
        """
        for number in range(highest // PAGE, max(0, lowest) // PAGE - 1, -1):
            page = self._pages.get(number)
            wanted = min(highest + 1 - number * PAGE, PAGE)
            if page is None or len(page) < wanted:
                return number * PAGE
        return None

    def put(self, first: int, groups: Sequence[Group]) -> None:
        """Keep a page, by the rank of its first group."""
        number = first // PAGE
        self._pages[number] = [*[None] * (first % PAGE), *groups]
        self._pages.move_to_end(number)
        for place, group in enumerate(groups):
            self._ranks[group.group_id] = first + place
        while len(self._pages) > KEPT:
            _, gone = self._pages.popitem(last=False)
            self._drop(gone)

    def _drop(self, page: Sequence[Group | None]) -> None:
        for group in page:
            if group is not None:
                self._ranks.pop(group.group_id, None)

    def note(self, group_id: str, rank: int) -> None:
        """Remember the rank of a group that is kept elsewhere."""
        self._ranks.setdefault(group_id, rank)

    def rank(self, group_id: str) -> int | None:
        """The rank of a group that was read."""
        return self._ranks.get(group_id)

    def group(self, group_id: str) -> Group | None:
        """A group that was read."""
        rank = self._ranks.get(group_id)
        return self.at(rank) if rank is not None else None

    def forget(self, group_id: str) -> bool:
        """Something happened to a group: its page is read again; False when it was not kept."""
        rank = self._ranks.get(group_id)
        gone = self._pages.pop(rank // PAGE, None) if rank is not None else None
        self._drop(gone or ())
        return gone is not None


@dataclass(slots=True)
class Search:
    """A filter that goes through the journal backwards, as far as somebody wants to see."""

    wanted: Filter
    below: int
    """Groups not yet looked at: those of lower rank."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Those found, newest first."""
    goal: int = SEARCH_STEP
    """Matches at which it waits."""
    floor: int = 0
    """Rank at which it waits."""
    back_to: float = 0.0
    """When the oldest group looked at was opened."""

    def __post_init__(self) -> None:
        self.floor = max(0, self.below - SEARCH_SPAN)

    @property
    def over(self) -> bool:
        """Everything was looked at."""
        return self.below <= 0

    @property
    def waits(self) -> bool:
        """Enough was found for now."""
        return self.over or len(self.groups) >= self.goal or self.below <= self.floor

    def next_page(self) -> tuple[int, int]:
        """First rank and number of the groups to read next."""
        first = max(0, self.below - SEARCH_PAGE)
        return first, self.below - first

    def take(self, first: int, groups: Sequence[Group], history: History) -> None:
        """Look at what was read."""
        for place in range(len(groups) - 1, -1, -1):
            group = groups[place]
            if self.wanted.matches(group):
                self.groups[group.group_id] = group
                history.note(group.group_id, first + place)
        self.below = 0 if first <= history.start else first
        if groups:
            self.back_to = groups[0].opened_at

    def more(self) -> None:
        """Go on beyond what was found."""
        self.goal = len(self.groups) + SEARCH_STEP
        self.floor = max(0, self.below - SEARCH_SPAN)
