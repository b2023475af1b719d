"""A list of groups that goes on into the journal: pages for what is in sight, and the search."""

import contextlib
from collections.abc import Callable

from textual import work

from ajet_swarm.common.errors import AjetError
from console.screens.marked_groups import MarkedVerbs
from console.session.history import PAGE, Search
from console.widgets.group_list import GroupList
from core.state import Group


class JournalList(MarkedVerbs):
    """Reads what the list misses; a subclass shows it."""

    _unread = ""
    """Why the journal could not be read when it was last asked for."""
    _searching: Search | None = None

    @property
    def groups(self) -> GroupList:
        """The list."""
        return self.query_one(GroupList)

    def show_target(self) -> None:
        """What the cursor stands on may be known now."""

    def on_group_list_missing(self, event: GroupList.Missing) -> None:
        """Rows came into sight that were not read yet."""
        self._read(event.first)

    def on_group_list_bottom(self, event: GroupList.Bottom) -> None:
        """The end of what was found: look further back."""
        search = self.groups.model.search
        if search is not None and search.waits and not search.over:
            search.more()
            self._look_back()

    @work(group="history", exclusive=True, exit_on_error=False)
    async def _read(self, first: int) -> None:
        """Read the page in sight; the newest wish replaces the one before."""
        start = self.session.history.start
        if not await self._older(first, PAGE, self.session.history.put):
            return
        if start != self.session.history.start:  # there are fewer rows than was thought
            self.update_view(frozenset({"groups"}))
        self.groups.loaded()
        self.show_target()

    async def _older(
        self, first: int, limit: int, take: Callable[[int, list[Group]], None]
    ) -> bool:
        try:
            take(*await self.session.older(first, limit))
        except AjetError as error:
            if self._unread != str(error):
                self._unread = str(error)
                self.host.say(f"The journal cannot be read: {error}", "error")
            return False
        self._unread = ""
        return self.is_mounted

    def _ask_start(self) -> None:
        """Learn where the journal begins, before anybody goes there."""
        if self.groups.model.evicted and not self.session.history.asked:
            self.session.history.asked = True
            self._read_start()

    @work(group="history-start", exclusive=True, exit_on_error=False)
    async def _read_start(self) -> None:
        """Read no group, only what comes with each page: a failure is said with the first page."""
        with contextlib.suppress(AjetError):
            await self.session.older(0, 0)
            if self.is_mounted and self.session.history.start:
                self.update_view(frozenset({"groups"}))

    def _look_back(self) -> None:
        search = self.groups.model.search
        if search is not None and not search.waits and search is not self._searching:
            self._searching = search
            self._search(search)

    @work(group="search", exclusive=True, exit_on_error=False)
    async def _search(self, search: Search) -> None:
        """Go through the journal until enough was found or another filter is wanted."""
        model, history = self.groups.model, self.session.history
        try:
            while not search.waits and model.search is search:
                first, count = search.next_page()
                if not await self._older(
                    first, count, lambda at, found: search.take(at, found, history)
                ):
                    return
                self.update_view(frozenset({"groups"}))
        finally:
            if self._searching is search:
                self._searching = None
