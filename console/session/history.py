"""Groups older than those in state: pages of the journal, and a backward search through it.

A group is addressed by its rank: 0 for the first group ever opened. New groups do not change the
ranks of older ones. In a pruned journal, the lowest ranks are empty.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ajet_swarm.common.errors import AjetError
from core.state.brief import complete

if TYPE_CHECKING:
    from console.session.app_state import Session
from collections import OrderedDict

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


log = logging.getLogger(__name__)

Key = TypeVar("Key", str, int)

WHOLE = 10
"""Number of newest groups that come whole with the snapshot: one of them is often opened first."""
TEXT_PAGE = 50
"""Groups completed by one request."""
CURVE_PAGE = 200
"""Engine runs completed by one request."""
RETRY_SECONDS = 2.0


@dataclass(slots=True)
class UnreadPage(Generic[Key]):
    """One request for what is missing of some records."""

    keys: Sequence[Key]
    changed: set[Key] = field(default_factory=set)
    """Records that changed since the request."""


class Unread(Generic[Key]):
    """The keys of the records that are not complete yet.

    Args:
        size: Number of records of a page.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: list[Key] = []
        """Newest last."""
        self._page: UnreadPage[Key] | None = None

    def begin(self, keys: Iterable[Key]) -> None:
        """Start with the brief records of a new snapshot; drop an unfinished request."""
        self._waiting = list(keys)
        self._page = None

    @property
    def waiting(self) -> int:
        """Number of records that are not complete."""
        return len(self._waiting)

    @property
    def due(self) -> bool:
        """Whether records wait and no request is on its way."""
        return bool(self._waiting) and self._page is None

    def note(self, key: Key) -> None:
        """Record that an event has changed a record."""
        if self._page is not None:
            self._page.changed.add(key)

    def next_page(self) -> UnreadPage[Key]:
        """Begin a request for the newest waiting records."""
        self._page = UnreadPage(self._waiting[-self._size :])
        return self._page

    def take(self, page: UnreadPage[Key]) -> frozenset[Key]:
        """End a request that was answered; return the keys for which the answer is current.

        Records that changed meanwhile keep waiting. After a new snapshot no answer is current.
        """
        if page is not self._page:
            return frozenset()
        self._page = None
        again = [key for key in page.keys if key in page.changed]
        self._waiting[-len(page.keys) :] = again
        return frozenset(page.keys) - page.changed

    def give_up(self, page: UnreadPage[Key]) -> None:
        """End a request without an answer; its records keep waiting."""
        if page is self._page:
            self._page = None


async def read_texts(session: "Session") -> None:
    """Complete all brief groups, until one request fails."""
    unread = session.unread_texts

    async def read(page: UnreadPage[str]) -> None:
        assert session.link is not None
        received = await session.link.groups(page.keys)
        current, groups = unread.take(page), session.state.groups
        for whole in received:
            group = groups.get(whole.group_id)
            if group is not None and group.brief and whole.group_id in current:
                complete(group, whole)
        session.touch(["groups", *(f"group:{group_id}" for group_id in current)])

    await _read_all(session, unread, read)


async def read_curves(session: "Session") -> None:
    """Complete the curves of all ended engine runs, until one request fails."""
    unread = session.unread_curves

    async def read(page: UnreadPage[int]) -> None:
        assert session.link is not None
        curves = await session.link.curves(page.keys)
        current = unread.take(page)
        for number, curve in curves.items():
            run = session.state.engine_runs.numbered(number)
            if run is not None and run.brief and number in current:
                run.curve = list(curve)
        session.touch(("runs",))

    await _read_all(session, unread, read)


async def _read_all(
    session: "Session", unread: Unread[Key], read: Callable[[UnreadPage[Key]], Awaitable[None]]
) -> None:
    while session.link is not None and unread.due:
        page = unread.next_page()
        try:
            await read(page)
        except AjetError as error:
            log.warning("details of older records cannot be read: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
            return
        finally:
            unread.give_up(page)
