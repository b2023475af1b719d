"""The groups of the list and their order: newest first, by group id.

In the plain list the groups of state stand above those of the journal, which are read by page. A
filter or another order looks at state, and at what a search has found in the journal.
"""

from collections.abc import Mapping, Sequence

from console.models.order import BY_TIME, SortOrder
from console.session.filters import Filter
from console.session.history import History, Search
from core.state import Group


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
        """The smallest on top."""
        self._filter = Filter()
        self._passed: dict[str, bool] = {}
        self._groups: Mapping[str, Group] = {}

    @property
    def filter(self) -> Filter:
        """The filter."""
        return self._filter

    @property
    def plain(self) -> bool:
        """Whether everything is listed by time: only then the whole journal can be reached."""
        return not self._filter and self.order is BY_TIME and not self.upward

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.ids) + self.older

    def set_filter(self, wanted: Filter) -> None:
        """Filter from the next `update` on."""
        self._filter = wanted
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
            groups: Those of state, oldest first.
            dirty: Keys of what changed.
            total: Groups there ever were.
            now: For values that grow with time.
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
                # The oldest of state may be open ones that were kept while newer ones fell out:
                # they are shown where they belong, between those of the journal.
                first_open = next((at for at, one in enumerate(groups.values()) if not one.open), 0)
                older = evicted + first_open
                fresh = newest_first[: len(newest_first) - first_open]
        else:
            fresh = self._filtered(groups, newest_first, dirty)
            fresh += self._found(groups, evicted)
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

    def _found(self, groups: Mapping[str, Group], evicted: int) -> list[str]:
        if evicted and self.search is None:
            self.search = Search(self._filter, self.total - self._newest())
        if self.search is None:
            return []
        return [key for key in self.search.groups if key not in groups]

    def _newest(self) -> int:
        """Return how many groups of state are newer than any group that was evicted."""
        groups = self._groups
        first_open = next((at for at, one in enumerate(groups.values()) if not one.open), 0)
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
        valued.sort(key=lambda one: one[0], reverse=not self.upward)
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
        group = self.history.at(self._lowest(place))
        return self._groups.get(group.group_id, group) if group is not None else None

    def missing(self, first: int, last: int) -> int | None:
        """Return the rank of the page to read for rows `first` to `last`; None if all are there."""
        first = max(first, len(self.ids))
        last = min(last, self.count - 1)
        if first > last:
            return None
        return self.history.missing(self._lowest(last), self._lowest(first))

    def _lowest(self, place: int) -> int:
        """Convert between the rank and the row of a group: rows are counted from the top."""
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
            return self._lowest(rank)

    def around(self, place: int, reach: int = 200) -> list[str]:
        """Return the ids of the groups near a row, from the top, as far as they are known."""
        rows = range(max(0, place - reach), min(self.count, place + reach))
        groups = [self.at(row) for row in rows]
        return [group.group_id for group in groups if group is not None]
