"""Which groups the list shows, and in what order: newest first, by group id."""

from collections.abc import Mapping, Sequence

from console.filters import Filter
from core.state import Group


class RowModel:
    """The ids of the groups that pass the filter; only changed groups are looked at again."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        """Newest first."""
        self.total = 0
        """Groups there are, shown or not."""
        self._filter = Filter()
        self._passed: dict[str, bool] = {}

    @property
    def filter(self) -> Filter:
        """What is shown."""
        return self._filter

    def set_filter(self, wanted: Filter) -> None:
        """Show other groups from the next `update` on."""
        self._filter = wanted
        self._passed.clear()

    def update(self, groups: Mapping[str, Group], dirty: frozenset[str]) -> bool:
        """Take in what changed; returns whether the ids or their order are others than before."""
        self.total = len(groups)
        newest_first = list(groups)
        newest_first.reverse()
        if not self._filter:
            self._passed.clear()
            fresh = newest_first
        else:
            fresh = self._filtered(groups, newest_first, dirty)
        changed = fresh != self.ids
        self.ids = fresh
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

    def place(self, group_id: str | None) -> int | None:
        """Where a group stands; None when it is not shown."""
        try:
            return self.ids.index(group_id) if group_id is not None else None
        except ValueError:
            return None
