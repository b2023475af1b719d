"""Groups older than those in state: pages of the journal, and a backward search through it.

A group is addressed by its rank: 0 for the first group ever opened. New groups do not change the
ranks of older ones. In a pruned journal, the lowest ranks are empty.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from console.session.filters import Filter
from core.state import Group

PAGE = 50
"""Groups read at once."""
MAX_PAGES = 40
"""Pages kept in memory; the least recently used page is dropped first."""
SEARCH_PAGE = 200
SEARCH_STEP = 40
"""Matches after which a search pauses."""
SEARCH_SPAN = 2_000
"""Groups after which a search pauses, whatever it found, to keep the proxy responsive."""


class History:
    """Cache of the journal pages that were read."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, list[Group | None]] = OrderedDict()
        self._ranks: dict[str, int] = {}
        self.start = 0
        """Rank of the oldest group, which is the number of pruned groups."""
        self.since = 0.0
        """When the newest pruned event happened, Unix seconds; 0 when nothing was pruned."""
        self.start_known = False
        """Whether `start` was requested from the proxy."""

    def clear(self) -> None:
        """Forget everything, because the session shows another journal."""
        self._pages.clear()
        self._ranks.clear()
        self.start, self.since, self.start_known = 0, 0.0, False

    def set_start(self, start: int, since: float) -> None:
        """Record where the journal begins; drop all pages when it was pruned further."""
        if start != self.start:
            self._pages.clear()
            self._ranks.clear()
        self.start, self.since, self.start_known = start, since, True

    def at(self, rank: int) -> Group | None:
        """Return the group of that rank; None until its page is read."""
        page = self._pages.get(rank // PAGE)
        if page is None:
            return None
        self._pages.move_to_end(rank // PAGE)
        place = rank % PAGE
        return page[place] if place < len(page) else None

    def missing(self, lowest: int, highest: int) -> int | None:
        """Return the first rank of a page needed to show these ranks; None when all were read.

        A page that was not full when it was read is needed again once there are more groups.
        """
        for number in range(highest // PAGE, max(0, lowest) // PAGE - 1, -1):
            page = self._pages.get(number)
            needed = min(highest + 1 - number * PAGE, PAGE)
            if page is None or len(page) < needed:
                return number * PAGE
        return None

    def put(self, first: int, groups: Sequence[Group]) -> None:
        """Store a page; `first` is the rank of its first group."""
        number = first // PAGE
        self._pages[number] = [*[None] * (first % PAGE), *groups]
        self._pages.move_to_end(number)
        for place, group in enumerate(groups):
            self._ranks[group.group_id] = first + place
        while len(self._pages) > MAX_PAGES:
            _, dropped = self._pages.popitem(last=False)
            self._drop(dropped)

    def _drop(self, page: Sequence[Group | None]) -> None:
        for group in page:
            if group is not None:
                self._ranks.pop(group.group_id, None)

    def note(self, group_id: str, rank: int) -> None:
        """Record the rank of a group that is stored elsewhere."""
        self._ranks.setdefault(group_id, rank)

    def rank(self, group_id: str) -> int | None:
        """Return the rank of a group that was read."""
        return self._ranks.get(group_id)

    def group(self, group_id: str) -> Group | None:
        """Return a group that was read."""
        rank = self._ranks.get(group_id)
        return self.at(rank) if rank is not None else None

    @property
    def has_marked(self) -> bool:
        """Whether a group that was read is marked."""
        return any(
            group is not None and group.marked for page in self._pages.values() for group in page
        )

    def forget(self, group_id: str) -> bool:
        """Drop the page of a group that has changed; return False when it was not stored."""
        rank = self._ranks.get(group_id)
        dropped = self._pages.pop(rank // PAGE, None) if rank is not None else None
        self._drop(dropped or ())
        return dropped is not None


@dataclass(slots=True)
class Search:
    """A search through the journal from newest to oldest, which pauses after some matches."""

    filter: Filter
    below: int
    """Groups of a lower rank are not searched yet."""
    groups: dict[str, Group] = field(default_factory=dict)
    """The matches, newest first."""
    goal: int = SEARCH_STEP
    """Number of matches at which the search pauses."""
    floor: int = 0
    """Rank at which the search pauses."""
    oldest_at: float = 0.0
    """When the oldest group searched so far was opened, Unix seconds."""

    def __post_init__(self) -> None:
        self.floor = max(0, self.below - SEARCH_SPAN)

    @property
    def finished(self) -> bool:
        """Whether the whole journal was searched."""
        return self.below <= 0

    @property
    def paused(self) -> bool:
        """Whether the search has reached its goal or floor, or has finished."""
        return self.finished or len(self.groups) >= self.goal or self.below <= self.floor

    def next_page(self) -> tuple[int, int]:
        """Return first rank and number of the groups to read next."""
        first = max(0, self.below - SEARCH_PAGE)
        return first, self.below - first

    def add_page(self, first: int, groups: Sequence[Group], history: History) -> None:
        """Search a page that was read; `first` is the rank of its first group."""
        for place in range(len(groups) - 1, -1, -1):
            group = groups[place]
            if self.filter.matches(group):
                self.groups[group.group_id] = group
                history.note(group.group_id, first + place)
        self.below = 0 if first <= history.start else first
        if groups:
            self.oldest_at = groups[0].opened_at

    def resume(self) -> None:
        """Continue a paused search."""
        self.goal = len(self.groups) + SEARCH_STEP
        self.floor = max(0, self.below - SEARCH_SPAN)
