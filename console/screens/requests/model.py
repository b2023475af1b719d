"""Rows of the group list (filter, order, paging into the journal), completion of its filter.

Without a filter and in time order, the groups in memory come first, then those of the journal,
which is read page by page. A filter or another order applies to the groups in memory and to the
matches that a search has read from the journal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.session.app_state import Session
from console.session.filters import FIELDS, FLAGS, NUMBERS, STATES, Filter
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
"""Rows on either side of a row that `RowModel.around` returns."""
MOST = 24
"""Most completions offered at once."""


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
        return not self._filter and self.newest_first

    @property
    def newest_first(self) -> bool:
        """Whether the rows are in the order of time."""
        return self.order is BY_TIME and not self.upward

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.ids) + self.older

    def set_filter(self, row_filter: Filter) -> None:
        """Filter from the next `update` on."""
        self._filter = row_filter
        self._passed.clear()
        self.search = None

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
                stayed = self._stayed()
                older = evicted + stayed
                fresh = newest_first[: len(newest_first) - stayed]
        else:
            fresh = self._filtered(groups, newest_first, dirty)
            fresh += self._journal_matches(groups, evicted)
        if not self.newest_first:
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
            self.search = Search(self._filter, self.total - len(groups) + self._stayed())
        if self.search is None:
            return []
        return [key for key in self.search.groups if key not in groups]

    def _stayed(self) -> int:
        """Return how many of the oldest groups in memory are open and stayed while newer ones were
        evicted: they are listed at their place between those of the journal."""
        return next((at for at, group in enumerate(self._groups.values()) if not group.open), 0)

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

    def place(self, group_id: str) -> int | None:
        """Return the row of a group; None when it is not listed."""
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


def marked_groups(session: Session) -> list[Group]:
    """Return the groups that carry the mark, oldest first."""
    return [group for group in session.state.groups.values() if group.marked]


# --- completion of the filter line ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completion:
    """The options that may replace the word at the cursor."""

    start: int
    """Index at which the replaced part begins."""
    end: int
    options: tuple[str, ...] = ()
    hint: str = ""
    """Describes the expected value when there are no options to list."""


def complete(text: str, cursor: int, known: Mapping[str, Iterable[str]]) -> Completion:
    """Return the completions of the word that ends at the cursor.

    Args:
        text: The filter line.
        cursor: Index of the character, from 0.
        known: Existing values by field: names of servers and models.
    """
    start = _word_start(text, cursor)
    word = text[start:cursor]
    if word.startswith("-"):
        start, word = start + 1, word[1:]
    if word.startswith('"'):
        return Completion(start, cursor)
    at = next((place for place, sign in enumerate(word) if sign in ":~<>="), None)
    if at is None:
        options = [_with_operator(name) for name in FIELDS if name.startswith(word.lower())]
        return Completion(start, cursor, tuple(options))
    end = at + 1
    while end < len(word) and word[end] in "<>=":
        end += 1
    return _values(word[:at].lower(), word[end:], start + end, cursor, known)


def _word_start(text: str, cursor: int) -> int:
    quoted, start = False, 0
    for place, sign in enumerate(text[:cursor]):
        if sign == '"':
            quoted = not quoted
        elif sign.isspace() and not quoted:
            start = place + 1
    return start


def _with_operator(name: str) -> str:
    if name in ("state", "ids") or name in FLAGS:
        return f"{name}:"
    return f"{name}<" if name in NUMBERS else f"{name}~"


def _values(
    name: str, typed: str, start: int, cursor: int, known: Mapping[str, Iterable[str]]
) -> Completion:
    options: Sequence[str] = ()
    hint = ""
    if name in ("state", "phase"):
        options = STATES
    elif name in FLAGS:
        options = ("yes", "no")
    elif name == "ids":
        hint = "group ids in full, with commas"
    elif name in NUMBERS:
        hint = "a number"
    elif name in known:
        names = sorted({one_line(value, 60) for value in known[name] if value})
        options = [f'"{name}"' if " " in name else name for name in names]
    elif name in FIELDS:
        hint = "part of its text"
    prefix = typed.lower()
    matches = [
        option
        for option in options
        if option.lower().startswith(prefix) and option.lower() != prefix
    ]
    return Completion(start, cursor, tuple(matches[:MOST]), hint)
