"""Rows of the group list: filter, order, and paging into the journal.

Without a filter and in time order, the groups in memory come first, then those of the journal,
which is read page by page. A filter or another order applies to the groups in memory and to the
matches that a search has read from the journal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from console.session.filters import Filter
from console.session.group_facts import best_reward, spread_of
from console.session.history import History, Search
from core.state import Group


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One order; groups without a value come last in both directions."""

    title: str
    column: str
    """Title of the column that carries the sign."""
    read: Callable[[Group, float], float | None]
    """Returns the value of a group now."""


def _waited(group: Group, now: float) -> float | None:
    if group.waited is not None:
        return group.waited
    return max(0.0, now - group.opened_at) if group.open else None


def took(group: Group, now: float) -> float | None:
    """Return the seconds from the request to the last reward; to now while it is open."""
    if group.closed_at is not None:
        return max(0.0, group.closed_at - group.opened_at)
    return max(0.0, now - group.opened_at) if group.open else None


ORDERS = (
    SortOrder("time", "time", lambda group, now: group.opened_at),
    SortOrder("best reward", "best", lambda group, now: best_reward(group)),
    SortOrder("spread", "sprd", lambda group, now: spread_of(group)),
    SortOrder("waiting time", "waited", _waited),
    SortOrder("latency", "took", took),
)
BY_TIME = ORDERS[0]
REACH = 200
"""Rows on either side of a row that `GroupRows.around` returns."""


class RowModel:
    """The ids of the groups that pass the filter; only changed groups are checked again."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        """Groups that are listed by id, from the top."""
        self.evicted = 0
        """Groups that are not in state and not pruned."""
        self.older = 0
        """Groups below them that only the journal has."""
        self.total = 0
        """Number of groups, shown or not."""
        self.history = History()
        self.search: Search | None = None
        """Search for matches in the journal; None without a filter or without older groups."""
        self.order = BY_TIME
        self.upward = False
        """Whether the smallest value is on top."""
        self._filter = Filter()
        self._passed: dict[str, bool] = {}
        self._groups: Mapping[str, Group] = {}

    @property
    def filter(self) -> Filter:
        """The filter."""
        return self._filter

    @property
    def plain(self) -> bool:
        """Whether all groups are listed in time order; only then the whole journal is listed."""
        return not self._filter and self.order is BY_TIME and not self.upward

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.ids) + self.older

    def set_filter(self, row_filter: Filter) -> None:
        """Filter from the next `update` on."""
        self._filter = row_filter
        self._passed.clear()
        self.search = None

    def set_order(self, order: SortOrder, upward: bool) -> None:
        """Sort in another order from the next `update` on."""
        self.order, self.upward = order, upward

    def update(
        self,
        groups: Mapping[str, Group],
        dirty: frozenset[str],
        total: int = 0,
        now: float = 0.0,
    ) -> bool:
        """Apply changes; return whether the rows or their order have changed.

        Args:
            groups: The groups in memory, oldest first.
            dirty: Keys of the changes.
            total: Number of groups ever opened.
            now: Unix seconds, for values that grow with time.
        """
        self._groups = groups
        self.total = max(total, len(groups))
        newest_first = list(groups)
        newest_first.reverse()
        evicted = self.evicted = max(0, self.total - len(groups) - self.history.start)
        older = 0
        if not self._filter:
            self._passed.clear()
            fresh = newest_first
            if evicted and self.plain:
                # The oldest groups in memory may be open ones that stayed while newer ones were
                # evicted: they are listed at their place between those of the journal.
                first_open = next(
                    (at for at, group in enumerate(groups.values()) if not group.open), 0
                )
                older = evicted + first_open
                fresh = newest_first[: len(newest_first) - first_open]
        else:
            fresh = self._filtered(groups, newest_first, dirty)
            fresh += self._journal_matches(groups, evicted)
        if not (self.order is BY_TIME and not self.upward):
            fresh = self._sorted(fresh, now)
        changed = fresh != self.ids or older != self.older
        self.ids, self.older = fresh, older
        return changed

    def _filtered(
        self, groups: Mapping[str, Group], newest_first: Sequence[str], dirty: frozenset[str]
    ) -> list[str]:
        before = {} if "*" in dirty else self._passed
        test = self._filter.matches
        self._passed = {
            key: before[key] if key in before and f"group:{key}" not in dirty else test(groups[key])
            for key in newest_first
        }
        return [key for key, passed in self._passed.items() if passed]

    def _journal_matches(self, groups: Mapping[str, Group], evicted: int) -> list[str]:
        if evicted and self.search is None:
            self.search = Search(self._filter, self.total - self._newest())
        if self.search is None:
            return []
        return [key for key in self.search.groups if key not in groups]

    def _newest(self) -> int:
        """Return how many groups of state are newer than any group that was evicted."""
        groups = self._groups
        first_open = next((at for at, group in enumerate(groups.values()) if not group.open), 0)
        return len(groups) - first_open

    def _sorted(self, ids: list[str], now: float) -> list[str]:
        valued: list[tuple[float, str]] = []
        without: list[str] = []
        for key in ids:
            group = self.known(key)
            value = self.order.read(group, now) if group is not None else None
            if value is None:
                without.append(key)
            else:
                valued.append((value, key))
        valued.sort(key=lambda pair: pair[0], reverse=not self.upward)
        return [*(key for _, key in valued), *without]

    # --- rows ---------------------------------------------------------------------------------

    def known(self, group_id: str) -> Group | None:
        """Return a group by its id, if it is in state or was read."""
        group = self._groups.get(group_id)
        if group is None and self.search is not None:
            group = self.search.groups.get(group_id)
        return group or self.history.group(group_id)

    def at(self, place: int) -> Group | None:
        """Return the group of a row; None beyond the end and while it is not read."""
        if 0 <= place < len(self.ids):
            return self.known(self.ids[place])
        if not 0 <= place < self.count:
            return None
        group = self.history.at(self._flip(place))
        return self._groups.get(group.group_id, group) if group is not None else None

    def missing(self, first: int, last: int) -> int | None:
        """Return the rank of the page to read for rows `first` to `last`; None if all are there."""
        first = max(first, len(self.ids))
        last = min(last, self.count - 1)
        if first > last:
            return None
        return self.history.missing(self._flip(last), self._flip(first))

    def _flip(self, place: int) -> int:
        """Convert a rank to a row or a row to a rank; ranks count from the bottom."""
        return self.count - 1 - place + self.history.start

    def place(self, group_id: str | None) -> int | None:
        """Return the row of a group; None when it is not listed."""
        if group_id is None:
            return None
        try:
            return self.ids.index(group_id)
        except ValueError:
            rank = self.history.rank(group_id)
            if rank is None or not 0 <= rank - self.history.start < self.older:
                return None
            return self._flip(rank)

    def around(self, place: int) -> list[str]:
        """Return the ids of the groups near a row, from the top, as far as they are known."""
        rows = range(max(0, place - REACH), min(self.count, place + REACH))
        groups = [self.at(row) for row in rows]
        return [group.group_id for group in groups if group is not None]
